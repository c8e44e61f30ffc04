"""The head of an .npy: what it says of the array, read from a file that somebody else made.

numpy's own reader has Python parse the header. Before Python 3.11.8, two threads that parse at the same time may make
one of them fail with a ``SystemError`` (https://github.com/python/cpython/issues/106905). A lock around numpy's reader
is not enough: it fails whenever any other thread parses, for example in an import. Headers that Python 2 wrote also go
through a tokenizer that fails in ways of its own on damaged files. The format is simple enough to read it here
(``tests/data/test_npy_head.py``).
"""

import math
import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.lib import format as npy_format

from xmc_tf.common.errors import InputError

_LONGEST = 1 << 16
_MOST_SIDES = 32
_WIDTHS = {b"\x01\x00": 2, b"\x02\x00": 4, b"\x03\x00": 4}  # of the length, by the version of the format
_NUMBER = r"\d{1,19}L?"  # with the mark of Python 2's long numbers
_ENTRY = (
    r"(?:'descr': *'(?P<descr>[<>|=]?[a-zA-Z]\d{0,9}(?:\[\w{1,9}\])?)'"
    r"|'fortran_order': *(?P<fortran>True|False)"
    rf"|'shape': *\((?P<shape>(?:{_NUMBER}, *)*(?:{_NUMBER})?)\))"
)
_DICTIONARY = re.compile(rf"\{{ *(?:{_ENTRY} *(?:, *|(?=\}}))){{3}}\}}\s*")  # in any order, as other writers may


@dataclass(frozen=True)
class Head:
    """The fields of a header, and where the data begin."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    length: int

    @property
    def nbytes(self) -> int:
        """Of the data that shape and type ask for."""
        return math.prod(self.shape) * self.dtype.itemsize


class Readable(Protocol):
    """Something to read bytes from."""

    def read(self, count: int, /) -> bytes:
        """Return the next bytes; fewer at the end."""


def read_head(file: Readable, what: str) -> Head:
    """Read the head, and leaves the file where the data begin.

    Raises:
        InputError: not the head of an array of plain numbers.
    """
    start = file.read(8)
    if start[:6] != npy_format.MAGIC_PREFIX or start[6:] not in _WIDTHS:
        raise damaged(what, f"it begins with {start!r}, as no .npy does")
    width = _WIDTHS[start[6:]]
    length = int.from_bytes(file.read(width), "little")
    text = file.read(min(length, _LONGEST)).decode("latin1")
    found = _DICTIONARY.fullmatch(text)
    if found is None or None in found.group("descr", "fortran", "shape"):
        raise damaged(what, f"its head cannot be read: {_shortened(text)}")
    try:
        dtype = np.dtype(found["descr"])
    except (TypeError, ValueError) as error:
        raise damaged(what, f"its head cannot be read: {error}") from None
    if dtype.hasobject:
        raise InputError(
            f"{what} holds pickled Python objects, which are never loaded because they can run code",
            expected="numbers",
            received=f"an array of {dtype}",
            fix="save the matrix with scipy.sparse.save_npz, or numpy.save of an array of numbers",
        )
    shape = tuple(int(side) for side in re.findall(r"\d+", found["shape"]))
    if dtype.itemsize == 0 or len(shape) > _MOST_SIDES or _room(shape, dtype) > np.iinfo(np.int64).max:
        raise damaged(what, f"its shape is {shape}, its type {dtype}")
    return Head(shape, found["fortran"] == "True", dtype, len(start) + width + length)


def damaged(what: str, how: str) -> InputError:
    """The error for a file that is not what its name says."""
    return InputError(
        f"{what} is damaged, truncated, or of another format",
        expected="a file written by scipy.sparse.save_npz, numpy.savez or numpy.save",
        received=how,
        fix="create or copy it again",
    )


def _room(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Return the size that numpy must be able to count, for an empty array too."""
    return math.prod(max(side, 1) for side in shape) * dtype.itemsize


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
