"""FarmHash's ``Fingerprint64``, as in TensorFlow's ``to_hash_bucket_fast``; names and order are as in the original."""

import numpy as np

from xmc_tf.common.compiled import inner

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)


@inner
def fetch(data, at, size):
    """Read ``size`` bytes as a little-endian number."""
    value = np.uint64(0)
    for i in range(size):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value


@inner
def _fetch64(data, at):
    value = np.uint64(0)
    for i in range(8):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value


@inner
def _rotate(value, by):
    return (value >> np.uint64(by)) | (value << np.uint64(64 - by))


@inner
def _shift_mix(value):
    return value ^ (value >> np.uint64(47))


@inner
def _mix(u, v, mul):
    a = _shift_mix((u ^ v) * mul)
    return _shift_mix((v ^ a) * mul) * mul


@inner
def _up_to_16(data, at, size):
    length = np.uint64(size)
    mul = _K2 + length * np.uint64(2)
    if size >= 8:
        a = _fetch64(data, at) + _K2
        b = _fetch64(data, at + size - 8)
        c = _rotate(b, 37) * mul + a
        d = (_rotate(a, 25) + b) * mul
        return _mix(c, d, mul)
    if size >= 4:
        return _mix(length + (fetch(data, at, 4) << np.uint64(3)), fetch(data, at + size - 4, 4), mul)
    if size > 0:
        y = np.uint64(data[at]) + (np.uint64(data[at + (size >> 1)]) << np.uint64(8))
        z = length + (np.uint64(data[at + size - 1]) << np.uint64(2))
        return _shift_mix(y * _K2 ^ z * _K0) * _K2
    return _K2


@inner
def _up_to_32(data, at, size):
    mul = _K2 + np.uint64(size) * np.uint64(2)
    a = _fetch64(data, at) * _K1
    b = _fetch64(data, at + 8)
    c = _fetch64(data, at + size - 8) * mul
    d = _fetch64(data, at + size - 16) * _K2
    return _mix(_rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + _K2, 18) + c, mul)


@inner
def _up_to_64(data, at, size):
    mul = _K2 + np.uint64(size) * np.uint64(2)
    a = _fetch64(data, at) * _K2
    b = _fetch64(data, at + 8)
    c = _fetch64(data, at + size - 8) * mul
    d = _fetch64(data, at + size - 16) * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _mix(y, a + _rotate(b + _K2, 18) + c, mul)
    e = _fetch64(data, at + 16) * mul
    f = _fetch64(data, at + 24)
    g = (y + _fetch64(data, at + size - 32)) * mul
    h = (z + _fetch64(data, at + size - 24)) * mul
    return _mix(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, mul)


@inner
def _weak_hash(data, at, a, b):
    """Hash 32 bytes and two seeds to two numbers."""
    last = _fetch64(data, at + 24)
    a += _fetch64(data, at)
    b = _rotate(b + a + last, 21)
    c = a
    a += _fetch64(data, at + 8) + _fetch64(data, at + 16)
    b += _rotate(a, 44)
    return a + last, b + c


@inner
def _longer(data, at, size):
    seed = np.uint64(81)
    y = seed * _K1 + np.uint64(113)
    z = _shift_mix(y * _K2 + np.uint64(113)) * _K2
    v0 = v1 = w0 = w1 = np.uint64(0)
    x = seed * _K2 + _fetch64(data, at)
    end = at + ((size - 1) // 64) * 64
    tail = (size - 1) & 63
    last = end + tail - 63
    while at != end:
        x = _rotate(x + y + v0 + _fetch64(data, at + 8), 37) * _K1
        y = _rotate(y + v1 + _fetch64(data, at + 48), 42) * _K1
        x ^= w1
        y += v0 + _fetch64(data, at + 40)
        z = _rotate(z + w0, 33) * _K1
        v0, v1 = _weak_hash(data, at, v1 * _K1, x + w0)
        w0, w1 = _weak_hash(data, at + 32, z + w1, y + _fetch64(data, at + 16))
        x, z = z, x
        at += 64
    mul = _K1 + ((z & np.uint64(0xFF)) << np.uint64(1))
    at = last
    w0 += np.uint64(tail)
    v0 += w0
    w0 += v0
    x = _rotate(x + y + v0 + _fetch64(data, at + 8), 37) * mul
    y = _rotate(y + v1 + _fetch64(data, at + 48), 42) * mul
    x ^= w1 * np.uint64(9)
    y += v0 * np.uint64(9) + _fetch64(data, at + 40)
    z = _rotate(z + w0, 33) * mul
    v0, v1 = _weak_hash(data, at, v1 * mul, x + w0)
    w0, w1 = _weak_hash(data, at + 32, z + w1, y + _fetch64(data, at + 16))
    x, z = z, x
    return _mix(_mix(v0, w0, mul) + _shift_mix(y) * _K0 + z, _mix(v1, w1, mul) + x, mul)


@inner
def fingerprint(data, at, size):
    """Return the fingerprint of ``size`` bytes, beginning at ``at``, as uint64."""
    if size <= 16:
        return _up_to_16(data, at, size)
    if size <= 32:
        return _up_to_32(data, at, size)
    if size <= 64:
        return _up_to_64(data, at, size)
    return _longer(data, at, size)
