"""Checks on any number of ranks: losses over all rows, and their gradients, equal those of an unsharded table."""

import numpy as np
import pytest
import tensorflow as tf

from tests.collective.cases import STRIDE, draw_case
from xmc_tf.collective.meters.traffic import bytes_sent
from xmc_tf.collective.optimizers.row_wise.optimizers import RowMeanAdam
from xmc_tf.collective.tables.full_table_loss import FullTableLoss, InPlaceAdam, RowStep
from xmc_tf.collective.tables.table import make_table

CASES = 12
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def _loss(scores, targets, weights):
    return weights * tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=scores)


def _draw(number, size):
    """Return a case and, for each rank, vectors, unique positives and their weights."""
    case = draw_case(number, size, "ragged")
    rng = np.random.default_rng(number)
    ranks = []
    for bags in case.ids:
        positives = [sorted({int(one) for one in bag}) for bag in bags]
        vectors = rng.normal(size=(len(bags), case.values.shape[1])).astype(np.float32)
        ranks.append((vectors, positives, [rng.uniform(0.5, 2, len(one)).astype(np.float32) for one in positives]))
    return case, ranks


def _reference(values, vectors, positives, weights, scales=None):
    """Return the losses of a rank's instances, and the gradients of their sum times 1, 2, 3, … or other scales."""
    targets, factors = np.zeros((len(vectors), len(values)), np.float32), np.ones((len(vectors), len(values)))
    for instance, (rows, theirs) in enumerate(zip(positives, weights, strict=True)):
        targets[instance, rows], factors[instance, rows] = 1, theirs
    scores = vectors.astype(np.float64) @ values.T
    losses = (factors * (np.logaddexp(0, scores) - scores * targets)).sum(axis=1)
    scales = np.arange(1, len(vectors) + 1) if scales is None else scales
    slopes = factors * (1 / (1 + np.exp(-scores)) - targets) * scales[:, None]
    return losses, slopes @ values, slopes.T @ vectors


def _tensors(vectors, positives, weights):
    flat, lengths = [one for rows in positives for one in rows], [len(rows) for rows in positives]
    ragged = tf.RaggedTensor.from_row_lengths(tf.constant(flat, tf.int64), tf.constant(lengths, tf.int64))
    factors = ragged.with_flat_values(tf.constant(np.concatenate([*weights, np.zeros(0)]), tf.float32))
    return tf.constant(vectors), ragged, factors


def check_losses_against_every_row(world):
    for number in range(0, CASES, STRIDE):
        case, ranks = _draw(number, world.size)
        table = case.table(world.rank)
        scorer = FullTableLoss(table)
        given, ragged, factors = _tensors(*ranks[world.rank])

        def forward(given=given, ragged=ragged, factors=factors, scorer=scorer, table=table):
            with tf.GradientTape() as tape:
                tape.watch(given)
                losses = scorer.losses(given, ragged, _loss, factors)
                total = tf.reduce_sum(losses * tf.range(1, tf.size(losses) + 1, dtype=tf.float32))
            return losses, tape.gradient(total, [given, table.variable])

        losses, (of_vectors, of_rows) = (tf.function(forward) if number % 2 else forward)()
        wanted, wanted_of_vectors, _ = _reference(case.values, *ranks[world.rank])
        np.testing.assert_allclose(losses, wanted, **CLOSE)
        np.testing.assert_allclose(of_vectors, wanted_of_vectors, **CLOSE)
        whole = sum(_reference(case.values, *theirs)[2] for theirs in ranks)
        np.testing.assert_allclose(of_rows, case.share(whole, table), **CLOSE)


def check_rows_updated_in_place(world):
    """Losses and gradients are those before the update; the update is Adam's without momentum, a mean for each row."""
    for number in range(0, CASES, STRIDE):
        case, ranks = _draw(number, world.size)
        table = make_table(
            f"in_place_{number}", *case.values.shape, size=world.size, rank=world.rank, partition=case.partition,
            initializer=case.values, trainable=False,
        )  # fmt: skip
        trainer = InPlaceAdam(table, RowMeanAdam(weight_decay=0.1, epsilon=1e-3), rows_at_once=3)
        given, ragged, factors = _tensors(*ranks[world.rank])
        rows, squares = case.values.astype(np.float64), np.zeros((len(case.values), 1))

        def train(step, given=given, ragged=ragged, factors=factors, trainer=trainer):
            with tf.GradientTape() as tape:
                tape.watch(given)
                losses = trainer.losses(given, ragged, _loss, factors, step=RowStep(step, 0.05, 0.5))
                total = tf.reduce_sum(losses * tf.range(1, tf.size(losses) + 1, dtype=tf.float32))
            return losses, tape.gradient(total, given)

        train = tf.function(train) if number % 2 else train
        for step in (1, 2, 3):
            losses, of_vectors = train(tf.constant(step))
            wanted, wanted_of_vectors, _ = _reference(rows, *ranks[world.rank])
            np.testing.assert_allclose(losses, wanted, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(of_vectors, wanted_of_vectors, rtol=1e-4, atol=1e-4)
            gradient = 0.5 * sum(_reference(rows, *theirs, np.ones(len(theirs[0])))[2] for theirs in ranks)
            squares = 0.999 * squares + 0.001 * (gradient**2).mean(axis=1, keepdims=True)
            move = gradient / (np.sqrt(squares / (1 - 0.999**step)) + 1e-3)
            rows = rows * (1 - 0.05 * 0.1) - 0.05 * move
            np.testing.assert_allclose(table.variable, case.share(rows, table), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(table.slots["squares"], case.share(squares, table), rtol=1e-3, atol=1e-7)


def check_vectors_are_sent_once_to_each_rank(world):
    case, ranks = _draw(3, world.size)
    table = case.table(world.rank)
    vectors = ranks[world.rank][0]
    nothing = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int64), tf.zeros([len(vectors) + 1], tf.int64))
    before = bytes_sent().get("vectors", 0)
    FullTableLoss(table).losses(tf.constant(vectors), nothing, _loss)
    assert bytes_sent().get("vectors", 0) - before == 4 * vectors.size * (world.size - 1)


def check_a_positive_out_of_range_is_named(world):
    case, _ = _draw(2, world.size)
    rows = case.values.shape[0]
    wrong = tf.ragged.constant([[rows + 7]] if world.rank == 0 else [[0]], dtype=tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match=str(rows + 7)):
        FullTableLoss(case.table(world.rank)).losses(tf.ones([1, case.values.shape[1]]), wrong, _loss)
