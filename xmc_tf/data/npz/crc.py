"""The CRC-32 of bytes from the CRC-32 of their parts.

A CRC is the remainder of a division of polynomials over bits. Bytes that follow shift it by a power of x per bit, and
powers of x can be multiplied quickly.
"""

from collections.abc import Iterable

_POLYNOMIAL = 0xEDB88320  # of zip archives, with the highest power in the lowest bit
_ONE = 1 << 31


def crc_of_all(parts: Iterable[tuple[int, int]]) -> int:
    """Return the CRC-32 of the concatenation of parts.

    Example:
        >>> crc_of_all([(zlib.crc32(b"one"), 3), (zlib.crc32(b"two"), 3)]) == zlib.crc32(b"onetwo")
        True

    Args:
        parts: the CRC-32 and the number of bytes of each part, in order.
    """
    total = 0
    for crc, length in parts:
        total = _product(_power_of_x(8 * length), total) ^ crc
    return total


def _product(a: int, b: int) -> int:
    """Return the product of two polynomials modulo the CRC's polynomial."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _power_of_x(exponent: int) -> int:
    power, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power
