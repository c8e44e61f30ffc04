"""Tests of hashes, of the index against a dictionary, and of initial rows."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.refusals import refused
from xmc_tf.collective.dynamic_tables.index import HASHES, NO_ROW, IdIndex, hash_ids
from xmc_tf.collective.dynamic_tables.table import initial_rows


def in_python(number):
    """Return the hash of a whole number with Python's unlimited numbers."""
    number &= HASHES
    for shift, factor in ((32, 0x4BE98134A5976FD3), (29, 0x3BBF2A01CC9AB4A1), (32, 1)):
        number ^= number >> shift
        number = number * factor & HASHES
    return number


@settings(max_examples=30)
@given(some.lists(some.integers(-(2**63), 2**63 - 1), max_size=30))
def test_hashes_of_numbers(numbers):
    got = hash_ids(tf.constant(numbers, tf.int64)).numpy().tolist()
    assert got == [in_python(number) for number in numbers]


def test_hashes_never_change_and_are_spread_evenly():
    """Saved models and checkpoints contain hashes, so these must be the same forever."""
    assert hash_ids(tf.constant(["", "book-17", "größe"])).numpy().tolist() == [
        1091578081476135818, 6490131742321996353, 6277438598510605232,
    ]  # fmt: skip
    hashes = hash_ids(tf.range(100_000)).numpy()
    assert len(np.unique(hashes)) == 100_000
    for bits in (hashes & 15, hashes >> 59):  # the place in an index, and the rank
        assert np.abs(np.bincount(bits, minlength=16) / 6250 - 1).max() < 0.05
    ragged = hash_ids(tf.ragged.constant([["a"], [], ["b", "a"]]))
    assert ragged.row_lengths().numpy().tolist() == [1, 0, 2]
    refused("strings or whole numbers", hash_ids, tf.constant([1.0]))


STEPS = some.lists(
    some.tuples(some.lists(some.integers(0, 40), max_size=12), some.booleans(), some.sets(some.integers(0, 40))),
    max_size=12,
)


@settings(max_examples=50)
@given(STEPS, some.integers(1, 3))
def test_the_index_equals_a_dictionary(steps, admit_after):
    index, known, with_row = IdIndex(admit_after), {}, {}
    for step, (batch, evicts, gone) in enumerate(steps):
        hashes = np.array([in_python(number) for number in batch], np.int64)
        before = dict(with_row)
        found = index.see(hashes, step)
        for one in dict.fromkeys(hashes.tolist()):
            count, _ = known.get(one, (0, 0))
            known[one] = (count + 1, step)
            if count + 1 >= admit_after and one not in with_row:
                with_row[one] = None
        for one, row in zip(hashes.tolist(), found.rows.tolist(), strict=True):
            assert (row != NO_ROW) == (one in with_row)
            if one in with_row:
                assert before.get(one) in (None, row)
                with_row[one] = row
        assert sorted(found.new_hashes.tolist()) == sorted(with_row.keys() - before.keys())
        assert len(set(with_row.values())) == len(with_row) == index.rows
        if evicts:
            entries = index.entries
            removed = {in_python(number) for number in gone}
            freed = index.keep(np.array([one not in removed for one in entries.hashes], bool))
            assert set(freed.tolist()) == {with_row[one] for one in removed & with_row.keys()}
            known = {one: seen for one, seen in known.items() if one not in removed}
            with_row = {one: row for one, row in with_row.items() if one not in removed}
        entries = index.entries
        assert dict(zip(entries.hashes.tolist(), zip(entries.counts, entries.last, strict=True), strict=True)) == known
        everything = np.array([in_python(number) for number in range(41)], np.int64)
        assert index.find(everything).tolist() == [with_row.get(one, NO_ROW) for one in everything.tolist()]


def test_an_index_of_many_ids_reuses_rows():
    index, hashes = IdIndex(), hash_ids(tf.range(50_000)).numpy()
    for step, at in enumerate(range(0, 50_000, 7000)):
        index.see(hashes[at : at + 7000], step)
    assert index.find(hashes).tolist() == list(range(1, 50_001))
    freed = index.keep(index.entries.last > 3)
    assert len(freed) == 28_000
    assert index.rows == 22_000
    index.see(hash_ids(tf.range(50_000, 78_000)).numpy(), 9)
    assert index.next_row == 50_001  # no row beyond those that were freed
    assert np.unique(index.entries.rows).tolist() == list(range(1, 50_001))


@pytest.mark.parametrize(
    ("initializer", "mean", "deviation", "limit"),
    [
        ("uniform", 0.0, 0.1 / 12**0.5, 0.05),
        (keras.initializers.RandomUniform(1.0, 3.0), 2.0, 2 / 12**0.5, 1.0),
        (keras.initializers.RandomNormal(1.0, 2.0), 1.0, 2.0, 12.0),
        (keras.initializers.TruncatedNormal(0.0, 1.0), 0.0, 0.8796, 2.0),
        ("zeros", 0.0, 0.0, 0.0),
        ("ones", 1.0, 0.0, 0.0),
        (keras.initializers.Constant(0.25), 0.25, 0.0, 0.0),
    ],
)
def test_initial_rows_depend_on_the_id_alone(initializer, mean, deviation, limit):
    draw, hashes = initial_rows(initializer, "items", 16, seed=3), hash_ids(tf.range(20_000)).numpy()
    rows = draw(hashes)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(draw(hashes[[700, 5]]), rows[[700, 5]])
    assert abs(rows.mean() - mean) < 0.01 * max(deviation, 1e-6)
    assert abs(rows.std() - deviation) <= 0.01 * deviation
    assert np.abs(rows - mean).max() <= limit + 1e-6
    if deviation:
        assert np.abs(np.corrcoef(rows.T) - np.eye(16)).max() < 0.05
        others = [initial_rows(initializer, *given)(hashes[:9]) for given in (("words", 16, 3), ("items", 16, 4))]
        assert all((other != rows[:9]).all() for other in others)


def test_an_initializer_that_needs_the_number_of_rows_is_refused():
    refused("number of rows is not known", initial_rows, "glorot_uniform", "items", 4, 0)
