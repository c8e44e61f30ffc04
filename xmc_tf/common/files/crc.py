"""CRC-32 checksums of files, and of concatenated parts whose checksums are known.

A CRC is the remainder of a division of polynomials over bits; each bit appended to the data multiplies it by x.
"""

import mmap
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

_PIECE = 1 << 26  # large pieces mean few waits for the GIL, while other threads use what is checked
_POLYNOMIAL = 0xEDB88320  # of zip archives, with the highest power in the lowest bit
_ONE = 1 << 31


def crc_of_range(path: Path, begin: int = 0, end: int | None = None) -> tuple[int, int]:
    """Return the CRC-32 of a range of a file, and the number of its bytes that exist."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        end = size if end is None else min(end, size)
        crc = 0
        # Mapped piece by piece, so that no more than a piece counts as memory of this process. Some network disks can
        # only be mapped privately.
        for start in range(begin - begin % mmap.ALLOCATIONGRANULARITY, end, _PIECE):
            length = min(_PIECE, end - start)
            with (
                mmap.mmap(file.fileno(), length, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=start) as content,
                memoryview(content) as view,
                view[max(begin - start, 0) :] as piece,
            ):
                crc = zlib.crc32(piece, crc)
        return crc, max(end - begin, 0)


def crc_of_all(parts: Iterable[tuple[int, int]]) -> int:
    """Return the CRC-32 of concatenated parts from each part's CRC-32 and number of bytes."""
    total = 0
    for crc, length in parts:
        total = _product(_power_of_x(8 * length), total) ^ crc
    return total


def _product(a: int, b: int) -> int:
    """Return the product of two polynomials modulo the CRC-32 polynomial."""
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
