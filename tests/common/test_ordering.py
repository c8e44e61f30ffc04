"""Sorting and selection inside kernels, compared with NumPy's."""

import numba
import numpy as np
import pytest

from xmc_tf.common import ordering
from xmc_tf.rankers.kernels import emit

sort_ascending, kth_largest = numba.njit(ordering.sort_ascending), numba.njit(ordering.kth_largest)
keep_heaviest, sort_by_name = numba.njit(emit._keep_heaviest), numba.njit(emit._sort_by_name)


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


def test_the_heaviest_weights_are_kept_and_of_equal_ones_the_first():
    draw = np.random.default_rng(0)
    for count in range(2, 60):
        names = draw.permutation(1 << 20)[:count].astype(np.int32)
        values = (draw.integers(1, 4, count) * draw.choice([-1, 1], count)).astype(np.float32)
        for most in range(1, count):
            kept = np.sort(np.argsort(-np.abs(values), kind="stable")[:most])
            some_names, some_values = names.copy(), values.copy()
            keep_heaviest(some_names, some_values, count, most)
            np.testing.assert_array_equal(some_names[:most], names[kept])
            np.testing.assert_array_equal(some_values[:most], values[kept])


def test_values_follow_their_names():
    draw = np.random.default_rng(0)
    for count in (0, 1, 17, 500):
        names = draw.permutation(np.iinfo(np.int32).max - np.arange(count)).astype(np.int32)
        values = draw.normal(size=count).astype(np.float32)
        order = np.argsort(names)
        expected = names[order], values[order]
        sort_by_name(names, values, count)
        np.testing.assert_array_equal(names, expected[0])
        np.testing.assert_array_equal(values, expected[1])
