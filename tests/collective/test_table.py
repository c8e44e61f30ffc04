"""Tests of tables: initial values depend on seed and row, not on the number of ranks; invalid tables are refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.collective.tables.initial_values import BLOCK_ROWS
from xmc_tf.collective.tables.table import make_table, table_of
from xmc_tf.ranks.partition import Partition, even_rows


def _joined(size, rows, **options):
    parts = [make_table("words", rows, 3, size=size, rank=rank, **options).variable.numpy() for rank in range(size)]
    return np.concatenate(parts)


@pytest.mark.parametrize(
    "initializer", ["uniform", "normal", "truncated_normal", "glorot_uniform", "he_normal", "zeros", "ones"]
)
@settings(max_examples=5)
@given(st.lists(st.integers(0, 2 * BLOCK_ROWS + 5), max_size=6))
def test_initial_values_do_not_depend_on_ranks_and_partition(initializer, cuts):
    rows = 2 * BLOCK_ROWS + 5
    partition = Partition(np.array([0, *sorted(cuts), rows], np.int64))
    found = _joined(len(cuts) + 1, rows, initializer=initializer, partition=partition)
    np.testing.assert_array_equal(found, _joined(1, rows, initializer=initializer))


def test_initial_values_depend_on_seed_and_name():
    values = [
        make_table(name, 50, 3, seed=seed).variable.numpy() for name, seed in [("a", 0), ("a", 1), ("b", 0), ("a", 0)]
    ]
    np.testing.assert_array_equal(values[0], values[3])
    assert not np.isclose(values[0], values[1]).any()
    assert not np.isclose(values[0], values[2]).any()


@pytest.mark.parametrize(
    "initializer",
    [
        keras.initializers.RandomUniform(-0.2, 0.6),
        keras.initializers.RandomNormal(1.0, 0.1),
        keras.initializers.TruncatedNormal(0.0, 0.5),
        keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal"),
        keras.initializers.Constant(0.25),
    ],
    ids=lambda one: type(one).__name__,
)
def test_values_are_distributed_as_keras_distributes_them(initializer):
    ours = make_table("words", 4000, 16, initializer=initializer).variable.numpy()
    keras = initializer([4000, 16]).numpy()
    spread = keras.std()
    assert abs(ours.mean() - keras.mean()) < 0.02 * max(spread, 0.01)
    assert abs(ours.std() - spread) <= 0.02 * spread
    # Quantiles, not the least and the largest value: of a normal distribution those differ by chance alone.
    shares = [0.001, 0.1, 0.5, 0.9, 0.999]
    assert np.abs(np.quantile(ours, shares) - np.quantile(keras, shares)).max() <= 0.2 * spread


def test_rows_of_a_matrix_and_of_a_function():
    matrix = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
    np.testing.assert_array_equal(_joined(3, 11, initializer=matrix), matrix)
    np.testing.assert_array_equal(_joined(3, 11, initializer=lambda rows: matrix[rows] * 2), matrix * 2)


def test_slots_are_created_on_demand_for_the_local_rows():
    table = make_table("words", 7, 3, size=3, rank=1)
    slot = table.slot("accumulator", 0.5)
    assert slot is table.slot("accumulator")
    assert slot.shape == table.variable.shape == [table.local_rows, 3]
    assert (slot.numpy() == 0.5).all()
    assert not slot.trainable
    assert table_of(table.variable) is table
    assert table_of(tf.Variable(1.0)) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": 0}, "at least one row"),
        ({"partition": even_rows(5, 1)}, "does not match its rows"),
        ({"initializer": np.zeros((4, 2), np.float32)}, "wrong shape"),
    ],
)
def test_invalid_tables_are_refused(options, said):
    refused(said, make_table, **{"name": "words", "rows": 4, "dim": 3, **options})
