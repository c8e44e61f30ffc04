"""Checks on any number of ranks: growing tables give the losses and the ids of one process."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from xmc_tf import CollectiveStrategy
from xmc_tf.collective.dynamic_tables import table as growing
from xmc_tf.collective.dynamic_tables.eviction import LeastFrequent, OlderThan
from xmc_tf.collective.dynamic_tables.index import hash_ids
from xmc_tf.ranks.solo import Solo

BATCH, DIM, KINDS = 12, 4, 40
NAMES = np.array([f"item {number}" for number in range(KINDS)])


def _train(strategy, table, ids_of, steps, accumulate=1):
    """Return the mean of the ranks' losses in each step."""
    size, rank = strategy.world_size(), strategy.rank()
    optimizer = strategy.optimizer(keras.optimizers.Adam(0.1, global_clipnorm=0.5), accumulate=accumulate)
    matrix = tf.Variable(tf.ones([DIM, 1]))

    @tf.function(reduce_retracing=True)
    def step(ids, bags, weights, targets):
        with tf.GradientTape() as tape:
            rows = tf.reduce_sum(strategy.lookup(table, ids), axis=1) + strategy.lookup(table, bags, "mean")
            rows += strategy.lookup(table, ids, "mean", weights=weights)
            loss = tf.reduce_mean(tf.square(rows @ matrix - targets))
        variables = [table.variable, matrix]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    losses, draw = [], np.random.default_rng(5)
    mine = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    for _ in range(steps):
        ids, bags = (np.minimum(draw.geometric(0.08, (BATCH, 3)) - 1, KINDS - 1) for _ in range(2))
        ragged = tf.RaggedTensor.from_tensor(tf.constant(ids_of(bags[mine])))
        weights, targets = (tf.constant(draw.uniform(size=(BATCH, width))[mine], tf.float32) for width in (3, 1))
        losses.append(float(step(tf.constant(ids_of(ids[mine])), ragged, weights, targets)))
    if size > 1:
        losses = np.mean(strategy.communicator.allgather(losses), axis=0)
    return np.array(losses)


def check_losses_equal_those_of_a_fixed_table_in_one_process(world):
    strategy, alone = CollectiveStrategy(world, seed=3), CollectiveStrategy(Solo())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing, "_FIRST_ROOM", 4)  # so that it grows several times, with its slots
        table = strategy.growing_table("items", DIM)

    def values(numbers):
        return table.initial(hash_ids(tf.constant(NAMES[numbers])).numpy())

    fixed = alone.table("items", KINDS, DIM, values)
    ours = _train(strategy, table, lambda numbers: NAMES[numbers], steps=15)
    expected = _train(alone, fixed, lambda numbers: numbers, steps=15)
    np.testing.assert_allclose(ours, expected, rtol=2e-4 if world.size > 1 else 1e-6)
    assert 30 < sum(world.allgather(table.index.rows)) <= KINDS
    assert table.room < 2 * KINDS
    at = table.index.find(hash_ids(tf.constant(NAMES)).numpy())  # 0 for ids of other ranks
    tables = (table.variable, fixed.variable), *zip(table.slots.values(), fixed.slots.values(), strict=True)
    for here, there in tables:
        np.testing.assert_allclose(here.numpy()[at[at > 0]], there.numpy()[at > 0], rtol=1e-3, atol=1e-5)
    assert not table.variable.numpy()[0].any()


def check_admission_and_eviction_equal_those_of_one_process(world):
    options = {"admit_after": 2, "evict": [LeastFrequent(max_rows=9, every=3), OlderThan(steps=6, every=2)]}
    losses, known = [], []
    for strategy in (CollectiveStrategy(world, seed=3), CollectiveStrategy(Solo(), seed=3)):
        table = strategy.growing_table("items", DIM, **options)
        losses.append(_train(strategy, table, lambda numbers: numbers - 7, steps=18, accumulate=2))
        mine = [
            tuple(map(int, one)) for one in zip(*table.index.entries[:3], table.index.entries.rows > 0, strict=True)
        ]
        parts = strategy.communicator.allgather(mine)
        known.append(sorted(one for part in parts for one in part))
        assert int(table.step) == 9
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-4)
    assert [tuple(one) for one in known[0]] == [tuple(one) for one in known[1]]
    assert sum(one[3] for one in known[0]) == 9
