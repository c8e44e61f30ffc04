"""Losses against TensorFlow's dense ones, and their gradients against finite differences."""

import numpy as np
import pytest
import tensorflow as tf

from xmc_tf.collective.tables.table import make_table
from xmc_tf.sequences.model import softmax
from xmc_tf.sequences.model.softmax import ByFrequency, ItemSoftmax, LogUniform, log_sum_exp

ITEMS, DIM, POSITIONS = 37, 5, 9
SEED = tf.constant([3, 8], tf.int64)
SAMPLERS = {
    "log-uniform": lambda count: LogUniform(ITEMS, count),
    "frequency": lambda count: ByFrequency(np.arange(ITEMS)[::-1] + 1, count),
}


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    monkeypatch.setattr(softmax, "CHUNK_BYTES", 4 * POSITIONS * 10)


@pytest.fixture
def given():
    draw = np.random.default_rng(0)
    table = make_table("items", ITEMS, DIM, initializer=draw.normal(size=(ITEMS, DIM)).astype(np.float32))
    vectors = tf.constant(draw.normal(size=(POSITIONS, DIM)), tf.float32)
    return table, vectors, tf.constant([3, 1, 3, 36, 0, 5, 9, 0, 11], tf.int64)


def with_gradients(loss, vectors, table, weights):
    @tf.function(autograph=False)
    def run():
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            losses = loss()
            total = tf.reduce_sum(losses * weights)
        gradients = tape.gradient(total, [vectors, table.variable])
        return losses, [tf.convert_to_tensor(one) for one in gradients]

    return run()


WEIGHTS = tf.constant(np.linspace(0.5, 1.5, POSITIONS), tf.float32)


def test_the_full_loss_equals_the_dense_one(given):
    table, vectors, targets = given
    ours = with_gradients(lambda: ItemSoftmax(table).losses(vectors, targets, SEED), vectors, table, WEIGHTS)

    def dense():
        logits = tf.matmul(vectors, table.variable, transpose_b=True)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)

    theirs = with_gradients(dense, vectors, table, WEIGHTS)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    for one, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def naive_sampled(scores, targets, sample):
    """Return the losses of a loop over the sample."""
    losses = []
    for row, target in zip(scores, targets, strict=True):
        terms = [row[target]]
        for item, log_expected in zip(sample.items.numpy(), sample.log_expected.numpy(), strict=True):
            if item != target:
                terms.append(row[item] - log_expected)
        losses.append(np.logaddexp.reduce(terms) - row[target])
    return losses


@pytest.mark.parametrize("route", ["features", "rows"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sampled_loss_equals_a_loop(given, sampler, route):
    table, vectors, targets = given
    drawing = SAMPLERS[sampler](25)
    softmax = ItemSoftmax(table, drawing, route)
    losses, _ = with_gradients(lambda: softmax.losses(vectors, targets, SEED), vectors, table, WEIGHTS)
    sample = drawing.draw(SEED)
    assert np.isin(sample.items.numpy(), targets.numpy()).any()  # so that something is excluded
    scores = vectors.numpy().astype(np.float64) @ table.variable.numpy().T
    np.testing.assert_allclose(losses, naive_sampled(scores, targets.numpy(), sample), rtol=1e-5)


@pytest.mark.parametrize("route", ["features", "rows"])
@pytest.mark.parametrize("sampler", [None, *SAMPLERS])
def test_gradients_equal_finite_differences(given, sampler, route):
    table, vectors, targets = given
    if sampler is None and route == "rows":
        return  # there is no such route
    softmax = ItemSoftmax(table, sampler and SAMPLERS[sampler](25), route)
    _, gradients = with_gradients(lambda: softmax.losses(vectors, targets, SEED), vectors, table, WEIGHTS)
    draw = np.random.default_rng(1)
    before = table.variable.numpy()
    for which, gradient in enumerate(gradients):
        step = draw.normal(size=gradient.shape).astype(np.float32)

        def total(size, which=which, step=step):
            moved = vectors + size * step if which == 0 else vectors
            table.variable.assign(before + (size * step if which == 1 else 0))
            return float(tf.reduce_sum(softmax.losses(moved, targets, SEED) * WEIGHTS))

        expected = (total(1e-2) - total(-1e-2)) / 2e-2
        table.variable.assign(before)
        assert float(tf.reduce_sum(gradient * step)) == pytest.approx(expected, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_large_samples_approach_the_full_loss(given, sampler, monkeypatch):
    monkeypatch.setattr(softmax, "CHUNK_BYTES", 1 << 22)
    table, vectors, targets = given
    full = ItemSoftmax(table).losses(vectors, targets, SEED).numpy()
    errors = [
        np.abs(ItemSoftmax(table, SAMPLERS[sampler](count)).losses(vectors, targets, SEED) - full).max()
        for count in (100, 100_000)
    ]
    assert errors[1] < 0.04 < errors[0]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samples_have_their_probabilities(sampler):
    sample = SAMPLERS[sampler](200_000).draw(SEED)
    found = np.bincount(sample.items.numpy(), minlength=ITEMS)
    expected = np.zeros(ITEMS)
    expected[sample.items.numpy()] = np.exp(sample.log_expected.numpy())
    assert expected.sum() == pytest.approx(200_000, rel=1e-5)
    assert np.all(np.abs(found - expected) < 5 * np.sqrt(expected) + 1)
    again = SAMPLERS[sampler](200_000).draw(SEED)
    assert np.array_equal(sample.items, again.items)
    other = SAMPLERS[sampler](200_000).draw(SEED + 1)
    assert not np.array_equal(sample.items, other.items)


def test_large_scores_stay_finite():
    found = log_sum_exp(tf.constant([[300.0], [-300.0]]), tf.ones([4, 1]), tf.zeros([4]), tf.zeros([0, 2], tf.int32))
    np.testing.assert_allclose(found, np.array([300, -300]) + np.log(4), rtol=1e-6)
