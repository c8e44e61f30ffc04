"""Ranges of documents in equally many rounds on all ranks."""

import numpy as np
import pytest

from tests.collective.threads import on_ranks
from xmc_tf.ranks.rounds import equal_rounds
from xmc_tf.ranks.solo import Solo


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
