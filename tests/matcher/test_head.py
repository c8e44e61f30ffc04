"""The label head: its rows on the ranks, its scores, its losses, and weight decay."""

import numpy as np
import pytest
import tensorflow as tf

from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.matcher.head import LabelHead, head_loss, shards
from xmc_tf.matcher.heads import Scaling
from xmc_tf.matcher.optimizer import decays
from xmc_tf.params.choices import LOSSES
from xmc_tf.ranks.solo import Solo


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_clusters_stay_together(size):
    splits = np.array([0, 4, 7, 7, 12, 20, 21, 30])
    bounds = shards(30, splits, size).bounds
    assert set(bounds) <= set(splits)
    assert np.diff(bounds).max() <= 30 / size + 9


@pytest.mark.parametrize("splits", [None, np.array([0, 30])])
def test_the_roots_children_may_be_cut_anywhere(splits):
    assert np.diff(shards(30, splits, 4).bounds).tolist() in ([7, 8, 7, 8], [8, 7, 8, 7], [7, 7, 8, 8], [8, 8, 7, 7])


def head_of(rows, **options):
    return LabelHead(CollectiveStrategy(Solo()), "head", len(rows), rows.shape[1] - 1, initial=rows, **options)


@pytest.mark.parametrize("name", ["cross-entropy", "weighted-squared-hinge"])
def test_all_nodes_as_candidates(name):
    """Losses and gradients equal those of explicit candidates."""
    rng = np.random.default_rng(1)
    rows, vectors = rng.normal(size=(6, 4)).astype(np.float32), rng.normal(size=(3, 3)).astype(np.float32)
    head, loss = head_of(rows, scaling=Scaling(True, 3.0)), head_loss(name)
    positives = tf.ragged.constant([[1, 5], [], [0]], dtype=tf.int64)
    weights = positives.with_flat_values(tf.constant([2.0, 0.5, 3.0]))
    targets, factors = np.zeros((3, 6), np.float32), np.ones((3, 6), np.float32)
    targets[[0, 0, 2], [1, 5, 0]], factors[[0, 0, 2], [1, 5, 0]] = 1, [2, 0.5, 3]
    nodes = tf.RaggedTensor.from_tensor(np.tile(np.arange(6), (3, 1)))
    given = tf.constant(vectors)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(given)
        told = head.losses(
            given, nodes, nodes.with_flat_values(targets.ravel()), loss, nodes.with_flat_values(factors.ravel())
        )
        of_all = head.losses_of_all(given, positives, loss, weights)
    np.testing.assert_allclose(of_all, told, rtol=1e-5)
    one, other = (tape.gradient(losses, [given, head.table.variable]) for losses in (of_all, told))
    np.testing.assert_allclose(one[0], other[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(one[1], tf.convert_to_tensor(other[1]), rtol=1e-4, atol=1e-6)


def test_a_vector_of_zeros_has_a_gradient():
    head = head_of(np.ones((3, 4), np.float32), scaling=Scaling(True))
    given = tf.zeros([1, 3])
    with tf.GradientTape() as tape:
        tape.watch(given)
        nodes = tf.ragged.constant([[0, 1]], dtype=tf.int64)
        loss = head.losses(given, nodes, nodes.with_flat_values(tf.ones([2])), head_loss("hinge"))
    assert np.isfinite(tape.gradient(loss, given)).all()


def test_variables_with_weight_decay():
    def named(name, *shape):
        return tf.Variable(tf.zeros(shape), name=name)

    assert decays(named("layer/dense/kernel", 2, 2))
    assert decays(named("embeddings/weight", 2, 2))
    assert not decays(named("layer/dense/bias", 2))
    assert not decays(named("relative_attention_bias/embeddings", 2, 2))
    assert not decays(named("LayerNorm/gamma", 2))


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
