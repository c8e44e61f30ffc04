"""CRC-32 checksums of files, and of concatenated parts whose checksums are known.

A CRC is the remainder of a division of polynomials over bits; each bit appended to the data multiplies it by x.
"""

import zlib
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from threading import Event

_PIECE = 1 << 18  # stays in the processor's cache between its copy and its checksum
_POLYNOMIAL = 0xEDB88320  # of zip archives, with the highest power in the lowest bit
_ONE = 1 << 31


def crc_of_stream(file: FileIO, length: int | None = None, stop: Event | None = None) -> tuple[int, int]:
    """Read the next ``length`` bytes (default: all) of an unbuffered file; return their CRC-32 and their number.

    Setting ``stop`` ends the computation early.
    """
    crc, done, view = 0, 0, memoryview(bytearray(_PIECE))
    while not (stop and stop.is_set()):
        read = file.readinto(view if length is None else view[: min(_PIECE, length - done)])
        if not read:
            break
        crc, done = zlib.crc32(view[:read], crc), done + read
    return crc, done


def crc_of_range(path: Path, begin: int = 0, end: int | None = None) -> tuple[int, int]:
    """Return the CRC-32 of a range of a file, and the number of bytes that were read."""
    with path.open("rb", buffering=0) as file:
        file.seek(begin)
        return crc_of_stream(file, None if end is None else end - begin)


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
