"""The header of an untrusted .npy file."""

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
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    length: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Readable(Protocol):
    def read(self, count: int, /) -> bytes:
        pass


def read_head(file: Readable, what: str) -> Head:
    """Read the header of an array of plain numbers, and leave the file where the data begin."""
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
    """Return the error for a damaged file."""
    return InputError(
        f"{what} is damaged, truncated, or of another format",
        expected="a file written by scipy.sparse.save_npz, numpy.savez or numpy.save",
        received=how,
        fix="create or copy it again",
    )


def _room(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Return the size that NumPy must be able to count, even for an empty array."""
    return math.prod(max(side, 1) for side in shape) * dtype.itemsize


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
