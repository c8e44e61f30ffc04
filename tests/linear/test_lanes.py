"""Every operation on lanes equals numpy's on each of the sixteen numbers."""

import numpy as np
import pytest
from numba import njit

from xmc_tf.rankers.kernels.lanes import (
    WIDTH,
    aligned_zeros,
    at,
    fma,
    load,
    load_at,
    load_signs,
    maximum,
    minimum,
    prefetch,
    prefetch_at,
    splat,
    store,
    store_at,
    where_positive,
)


@njit
def apply_all(a, b, c, signs, row, number, out):
    """Write the result of each operation on row ``row`` of the inputs to a row of ``out``."""
    x, y, z = load(a, row), load(b, row), load(c, row)
    prefetch(a, row)
    store(out, 0, x)
    store(out, 1, x + y)
    store(out, 2, x - y)
    store(out, 3, x * y)
    store(out, 4, x / y)
    store(out, 5, fma(x, y, z))
    store(out, 6, maximum(x, y))
    store(out, 7, minimum(x, y))
    store(out, 8, where_positive(x, y, z))
    store(out, 9, load_signs(signs, row))
    store(out, 10, splat(number))
    store_at(out, 11 * 16 + 3, load_at(a, 5))
    for offset in range(-3, 2000, 500):  # beyond the array too: nothing is read
        prefetch_at(a, offset)
        prefetch_at(signs, offset)
    store(out, 13, splat(at(a, 16 * row + 7)) + splat(at(signs, 16 * row + 7)))


def test_each_operation():
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=(4, WIDTH)).astype(np.float32) for _ in range(3))
    a[2, :4] = [0.0, -0.0, 1e-30, -1e-30]
    signs = rng.integers(-1, 2, (4, WIDTH)).astype(np.int8)
    out = np.full((14, WIDTH), np.nan, np.float32)
    apply_all(a, b, c, signs, 2, 0.1, out)
    x, y, z = a[2], b[2], c[2]
    expected = [x, x + y, x - y, x * y, x / y]
    for row, values in enumerate(expected):
        np.testing.assert_array_equal(out[row], values)
    np.testing.assert_allclose(out[5], x.astype(np.float64) * y + z, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(out[6], np.maximum(x, y))
    np.testing.assert_array_equal(out[7], np.minimum(x, y))
    np.testing.assert_array_equal(out[8], np.where(x > 0, y, z))
    np.testing.assert_array_equal(out[9], signs[2])
    np.testing.assert_array_equal(out[10], np.float32(0.1))
    np.testing.assert_array_equal(out.ravel()[11 * WIDTH + 3 :][:WIDTH], a.ravel()[5:][:WIDTH])
    assert np.isnan(out.ravel()[11 * WIDTH :][:3]).all()
    np.testing.assert_array_equal(out[13], a[2, 7] + signs[2, 7])


@pytest.mark.parametrize("rows", [1, 7])
def test_rows_begin_on_cache_lines(rows):
    array = aligned_zeros(rows)
    assert array.shape == (rows, WIDTH)
    assert array.ctypes.data % 64 == 0
    assert not array.any()
