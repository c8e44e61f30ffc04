"""Tests of partitions with random cases, compared with exhaustive search."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.threads import on_ranks
from xmc_tf.ranks.partition import Partition, balanced, equal_rounds, even_rows
from xmc_tf.ranks.solo import Solo

SIZES = st.integers(1, 9)


@st.composite
def partitions(draw, rows=None):
    rows = draw(st.integers(0, 40)) if rows is None else rows
    inner = draw(st.lists(st.integers(0, rows), max_size=6))
    return Partition(np.array([0, *sorted(inner), rows]))


@given(st.integers(0, 10**12), SIZES)
def test_even_rows_differ_by_one_at_most(rows, size):
    partition = even_rows(rows, size)
    shares = np.diff(partition.bounds)
    assert partition.size == size
    assert partition.rows == rows
    assert shares.max() - shares.min() <= 1
    assert partition.bounds.dtype == np.int64


def largest_share(weights, bounds):
    return max(sum(weights[start:stop]) for start, stop in itertools.pairwise(bounds))


@given(
    st.lists(st.integers(0, 12), max_size=9),
    st.integers(1, 4),
    st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=6)),
)
def test_balanced_is_the_best_of_all_contiguous_partitions(weights, size, boundaries):
    if boundaries is not None:
        boundaries = [row for row in boundaries if row <= len(weights)]
    allowed = range(len(weights) + 1) if boundaries is None else sorted({0, *boundaries, len(weights)})
    everything = itertools.combinations_with_replacement(allowed, size - 1)
    best = min(largest_share(weights, [0, *inner, len(weights)]) for inner in everything)
    partition = balanced(np.array(weights, dtype=np.int64), size, boundaries)
    assert largest_share(weights, partition.bounds) == best
    assert set(partition.bounds.tolist()) <= set(allowed)
    assert partition.size == size


def test_equal_weights_are_even_and_leave_no_rank_without_rows():
    assert sorted(np.diff(balanced(np.ones(10), 4).bounds)) == [2, 2, 3, 3]
    # The largest row decides the limit; the others are spread evenly over the rest all the same.
    assert balanced([100, 1, 1, 1, 1, 1, 1], 3).bounds.tolist() == [0, 1, 4, 7]
    assert balanced([9, 9, 1, 1, 1, 1, 1, 1, 9, 9], 4).bounds.tolist() == [0, 1, 5, 9, 10]


def test_weights_of_zero_count_as_equal():
    assert balanced(np.zeros(8), 4).bounds.tolist() == [0, 2, 4, 6, 8]
    assert balanced([], 3).bounds.tolist() == [0, 0, 0, 0]


def test_a_hundred_million_rows_in_clusters_over_a_thousand_ranks():
    starts = np.arange(0, 1_000_001, 7)
    partition = balanced(np.arange(1_000_000), 1000, starts)
    shares = [np.arange(*partition.range(rank)).sum() for rank in range(1000)]
    assert max(shares) < 1.05 * np.mean(shares)


def test_equal_partitions_are_equal_and_cannot_be_changed():
    assert even_rows(6, 2) == Partition(np.array([0, 3, 6]))
    assert even_rows(6, 2) != even_rows(6, 3)
    assert len({even_rows(6, 2), Partition([0, 3, 6])}) == 1
    with pytest.raises(ValueError, match="read-only"):
        even_rows(6, 2).bounds[1] = 0


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([], []), ([3, 1, 5], [(0, 2), (2, 3)]), ([9, 1, 1], [(0, 1), (1, 3)]), ([0, 0, 4], [(0, 3)])],
)
def test_ranges_hold_at_most_so_many_entries(counts, expected):
    assert equal_rounds(np.concatenate([[0], np.cumsum(counts)]).astype(int), 4, Solo()) == expected


def test_all_ranks_have_equally_many():
    begins = [np.array([0, 4, 8, 12]), np.array([0, 1])]
    ranges = on_ranks(2, lambda world: equal_rounds(begins[world.rank], 4, world))
    assert list(ranges) == [[(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 1), (1, 1)]]
