"""Sorting and selection inside kernels, compared with NumPy's."""

import numba
import numpy as np
import pytest

from xmc_tf.common import ordering

sort_ascending, kth_largest = numba.njit(ordering.sort_ascending), numba.njit(ordering.kth_largest)


@pytest.mark.parametrize("highest", [1, 5, 1 << 30])
def test_numbers_are_sorted(highest):
    draw = np.random.default_rng(0)
    for count in [*range(70), 1000, 1024, 1025]:
        numbers = draw.integers(0, highest, count).astype(np.int32)
        expected = np.sort(numbers)
        sort_ascending(numbers, np.empty(count, np.int32))
        np.testing.assert_array_equal(numbers, expected)


def test_the_kth_largest_number():
    draw = np.random.default_rng(0)
    for count in range(1, 40):
        numbers = draw.integers(-5, 5, count).astype(np.float32)
        for k in range(1, count + 1):
            assert kth_largest(numbers.copy(), k) == np.sort(numbers)[-k]


@pytest.mark.parametrize("most", [1, 2, 7, 40])
def test_a_heap_keeps_the_best_and_ties_go_to_the_lower_number(most):
    scores = np.random.default_rng(most).integers(0, 9, 30).astype(np.float32)
    kept, values, size = np.zeros(most, np.int64), np.zeros(most, np.float32), 0
    for number, score in enumerate(scores):
        size = ordering.offer(kept, values, size, most, number, score)
    ordering.sort_best_first(kept, values, size)
    assert kept[:size].tolist() == np.lexsort((np.arange(30), -scores))[:most].tolist()
    assert np.array_equal(values[:size], scores[kept[:size]])
