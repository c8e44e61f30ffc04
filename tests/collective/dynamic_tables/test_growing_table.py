"""Tests of growing tables in one process: the same losses as a fixed table, admission, eviction and slots."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.refusals import refused
from xmc_tf import CollectiveStrategy
from xmc_tf.collective.dynamic_tables import table as growing
from xmc_tf.collective.dynamic_tables.eviction import LeastFrequent, OlderThan
from xmc_tf.collective.dynamic_tables.index import hash_ids
from xmc_tf.collective.dynamic_tables.keras_embedding import GrowingEmbedding
from xmc_tf.ranks.solo import Solo


def hashes_of(ids):
    return hash_ids(tf.constant(ids)).numpy()


def seen(table, *steps):
    """Look up ids in training, a list for each step; return the rows of the last step."""
    rows = None
    for ids in steps:
        rows = tf.gather(table.variable, table.rows_of(tf.constant(hashes_of(ids)), training=True))
        table.finish_step(table.step + 1)
    return rows


def known(table, ids):
    """Return which ids have a row."""
    return [one for one, row in zip(ids, table.index.find(hashes_of(ids)), strict=True) if row]


def make_model(strategy, **options):
    with strategy.scope(), strategy.embedding_scope():
        ids = keras.Input([None], dtype=tf.string, name="ids", ragged=True)
        layer = GrowingEmbedding(4, name="items", combiner="sum", **options)
        model = keras.Model(ids, keras.layers.Dense(1, kernel_initializer="ones", name="score")(layer(ids)))
        model.compile(keras.optimizers.Adagrad(0.1), "mse")
    return model, layer.table


def test_inference_adds_no_ids_and_gives_zeros_for_unknown_ones():
    model, table = make_model(CollectiveStrategy(Solo()), embeddings_initializer="ones")
    model.predict(tf.ragged.constant([["a", "b"], ["c"]]), verbose=0)
    assert table.index.rows == 0
    model.train_on_batch(tf.ragged.constant([["a", "b"], []]), np.zeros([2, 1]))
    assert known(table, ["a", "b", "c"]) == ["a", "b"]
    bias = float(model.layers[-1].bias[0])
    unknown, both, one = model.predict(tf.ragged.constant([["x"], ["a", "y"], ["a"]]), verbose=0)[:, 0]
    assert unknown == bias
    assert both == one != bias
    assert table.index.rows == 2
    assert model.evaluate(tf.ragged.constant([["z"]]), np.array([[bias]]), verbose=0) == 0.0
    assert table.index.entries.counts.tolist() == [1, 1]


def test_an_id_gets_its_row_after_enough_sightings():
    strategy = CollectiveStrategy(Solo())
    table = strategy.growing_table("items", 3, "ones", admit_after=3)
    optimizer = strategy.optimizer(keras.optimizers.SGD(1.0))
    sums = []
    for ids in (["a", "b"], ["a", "a"], ["a"], ["a"]):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(strategy.lookup(table, ids))
            # A second lookup in the same step is not another sighting.
            loss += 0.0 * tf.reduce_sum(strategy.lookup(table, ids))
        optimizer.apply_gradients([(tape.gradient(loss, table.variable), table.variable)])
        sums.append(float(loss))
    assert sums == [0.0, 0.0, 3.0, 0.0]  # ones when admitted, which the step then reduces to zeros
    assert known(table, ["a", "b"]) == ["a"]
    assert table.index.entries.counts.tolist() == [4, 1]
    assert not table.variable.numpy()[0].any()  # the row of ids without one is not trained


def test_old_ids_are_evicted_and_start_again():
    table = growing.make_growing_table("items", 3, evict=OlderThan(steps=2, every=1))
    slot = table.slot("m", 0.5)
    first = seen(table, [1, 2])
    table.variable.assign_add(tf.ones_like(table.variable))
    slot.assign_add(tf.ones_like(slot))
    seen(table, [1])
    assert known(table, [1, 2]) == [1, 2]  # 2 was seen in the last but one step
    seen(table, [1])
    assert known(table, [1, 2]) == [1]
    again = seen(table, [2])
    np.testing.assert_array_equal(again[0], first[1])
    row = int(table.index.find(hashes_of([2]))[0])
    assert slot.numpy()[row].tolist() == [0.5] * 3  # as in a new row, though the row is the old one
    assert table.index.next_row == 3
    assert slot.numpy()[int(table.index.find(hashes_of([1]))[0])].tolist() == [1.5] * 3


def test_the_least_frequent_ids_are_evicted():
    table = growing.make_growing_table("items", 2, evict=LeastFrequent(max_rows=3, every=4), admit_after=2)
    seen(table, [1, 2, 3, 4], [1, 2, 3, 4, 7], [1, 2, 8, 9, 10])
    assert known(table, [1, 2, 3, 4, 7, 8]) == [1, 2, 3, 4]  # the check is after the fourth step
    seen(table, [3, 11])
    assert known(table, range(12)) == [1, 2, 3]
    # At most as many ids that are not admitted: those seen last.
    assert len(table.index.entries.hashes) == 6
    seen(table, [11, 4])
    assert known(table, range(12)) == [1, 2, 3, 11]  # 4 is new again


def test_several_rules():
    rules = [OlderThan(3, every=1), LeastFrequent(2, every=1)]
    table = growing.make_growing_table("items", 2, evict=rules)
    seen(table, [1, 2, 3], [1, 2], [1], [1])
    assert known(table, [1, 2, 3]) == [1, 2]
    seen(table, [1])
    assert known(table, [1, 2, 3]) == [1]


def test_steps_in_one_execution_evict_between_them():
    strategy = CollectiveStrategy(Solo())
    with strategy.scope(), strategy.embedding_scope():
        ids = keras.Input([1], dtype=tf.int64)
        layer = GrowingEmbedding(2, name="items", evict=LeastFrequent(max_rows=2, every=1))
        model = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
        model.compile("adam", "mse", steps_per_execution=4)
    model.fit(np.arange(16).reshape(-1, 1), np.zeros([16, 1, 1]), batch_size=2, shuffle=False, verbose=0)
    assert known(layer.table, range(16)) == [14, 15]
    assert layer.table.index.next_row == 5  # two rows of a step before, and two new ones
    assert int(layer.table.step) == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evict": "oldest"}, "evict"),
        ({"admit_after": 0}, "admit_after"),
        ({"dim": 0}, "columns"),
    ],
)
def test_wrong_options_are_refused(options, message):
    refused(message, growing.make_growing_table, **{"name": "items", "dim": 4, **options})


def test_wrong_rules_and_places_are_refused():
    for make in (lambda: OlderThan(steps=0), lambda: LeastFrequent(max_rows=0), lambda: OlderThan(5, every=0)):
        refused("1 or more", make)
    refused("embedding_scope", GrowingEmbedding, 4)
    strategy = CollectiveStrategy(Solo())
    strategy.growing_table("items", 4)
    refused("already", strategy.table, "items", 4, 4)
