"""Losses of the head compared with numpy, and gradients with finite differences, by both routes."""

import numpy as np
import pytest
import tensorflow as tf

from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.matcher.head import LabelHead, head_loss
from xmc_tf.matcher.heads import Scaling
from xmc_tf.params.choices import LOSSES
from xmc_tf.ranks.solo import Solo

NODES, DIM = 7, 4
SPLITS = np.array([0, 3, 3, 7, 8])  # of four documents, one without candidates


def plain(name, scores, targets, weights):
    """Return the loss of one document."""
    if not len(scores):
        return 0.0
    if name == "cross-entropy":
        chance = 1 / (1 + np.exp(-scores))
        return -np.sum(np.where(targets > 0, np.log(chance), np.log1p(-chance)))
    slack = np.maximum(0, 1 - np.where(targets > 0, scores, -scores))
    slack = slack**2 if "squared" in name else slack
    return np.mean(slack * np.where((targets > 0) & ("weighted" in name), weights, 1))


def problem(seed=0):
    rng = np.random.default_rng(seed)
    pairs = SPLITS[-1]
    targets = (rng.random(pairs) < 0.4).astype(np.float32)
    weights = np.where(targets > 0, rng.uniform(1, 4, pairs), 1).astype(np.float32)
    return (
        rng.normal(size=(NODES, DIM + 1)).astype(np.float32),
        rng.normal(size=(4, DIM)).astype(np.float32),
        rng.integers(0, NODES, pairs),
        targets,
        weights,
    )


def of_documents(name, rows, vectors, ids, targets, weights, scaling):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    seen = scaling.factor * (unit if scaling.normalize else vectors)
    losses = []
    for document in range(4):
        of = slice(SPLITS[document], SPLITS[document + 1])
        scores = rows[ids[of], :-1] @ seen[document] + rows[ids[of], -1]
        losses.append(plain(name, scores, targets[of], weights[of]))
    return np.array(losses)


@pytest.mark.parametrize(("normalize", "scale"), [(False, 1.0), (True, 3.0)])
@pytest.mark.parametrize("route", ["rows", "features"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name, route, normalize, scale):
    rows, vectors, ids, targets, weights = problem()
    scaling = Scaling(normalize, scale)
    head = LabelHead(CollectiveStrategy(Solo()), "head", NODES, DIM, route=route, initial=rows, scaling=scaling)
    ragged = tf.RaggedTensor.from_row_splits(ids, SPLITS)
    given = tf.constant(vectors)
    with tf.GradientTape() as tape:
        tape.watch(given)
        losses = head.losses(
            given, ragged, ragged.with_flat_values(targets), head_loss(name), ragged.with_flat_values(weights)
        )
        total = tf.reduce_sum(losses)
    wanted = of_documents(name, rows, vectors, ids, targets, weights, scaling)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)

    of_vectors, of_rows = tape.gradient(total, [given, head.table.variable])
    exact = [one.astype(np.float64) for one in (rows, vectors)]
    for gradient, part in zip([tf.convert_to_tensor(of_rows), of_vectors], exact, strict=True):
        by_differences = np.zeros_like(part)
        for place in np.ndindex(part.shape):
            kept, sides = part[place], []
            for step in (1e-5, -1e-5):
                part[place] = kept + step
                sides.append(of_documents(name, *exact, ids, targets, weights, scaling).sum())
            part[place] = kept
            by_differences[place] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(gradient, by_differences, rtol=1e-3, atol=1e-4)
