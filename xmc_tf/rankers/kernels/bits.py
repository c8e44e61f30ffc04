"""Counting bits, and checksums, inside Numba kernels."""

import numpy as np
from numba.extending import intrinsic

from xmc_tf.common.compiled import inner

LINE = 8  # 64-bit numbers of a checksum that are read at a time
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@intrinsic
def popcount(typing, value):
    """Return the number of set bits of a whole number."""

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return value(value), codegen


@inner
def _mixed(state, number):
    """Return a state that differs if either the previous state or the number differs."""
    state = (state ^ number) * _FACTOR
    return state ^ (state >> _HALF)


@inner
def checksum(numbers, first, last):
    """Return the checksum of a range of uint64 whose length is a multiple of ``LINE``.

    It runs at memory speed, because the eight states do not wait for each other. It detects damage, not attacks: any
    change within one number, and all but 1 of 2^64 other changes.
    """
    a = b = c = d = e = f = g = h = np.uint64(0)
    for i in range(first, last, LINE):
        a, b = _mixed(a, numbers[i]), _mixed(b, numbers[i + 1])
        c, d = _mixed(c, numbers[i + 2]), _mixed(d, numbers[i + 3])
        e, f = _mixed(e, numbers[i + 4]), _mixed(f, numbers[i + 5])
        g, h = _mixed(g, numbers[i + 6]), _mixed(h, numbers[i + 7])
    total = np.uint64(0)
    for state in (a, b, c, d, e, f, g, h):
        total = _mixed(total, state)
    return total
