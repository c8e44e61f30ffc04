"""Read untrusted .npz and .npy files. Uncompressed arrays can be mapped, so that all processes share one copy."""

import math
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from io import BytesIO
from mmap import ACCESS_READ
from mmap import mmap as MemoryMap  # noqa: N812  parameters are called mmap
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.lib import format as npy_format

from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import existing_file
from xmc_tf.store.checksums import HEAD_BYTES, MAGIC, data_start

# An archive that expands to more than this, and by more than this factor, is considered a zip bomb. Equal values shrink
# a thousandfold, but their indices do not: real matrices of labels shrink five to twentyfold.
BOMB_BYTES = 1 << 28
BOMB_RATIO = 100

# NumPy's own reader lets Python parse the header, which fails now and then in threads before Python 3.11.8
# (https://github.com/python/cpython/issues/106905, tests/data/test_npy_head.py).
_LONGEST = 1 << 16  # bytes of a header
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
    length: int  # bytes before the data

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def file_format(path: str | Path) -> Literal["npy", "npz", ""]:
    """Return the format of a file, detected from its first bytes regardless of its name."""
    with open(path, "rb") as file:
        head = file.read(len(npy_format.MAGIC_PREFIX))
    if head == npy_format.MAGIC_PREFIX:
        return "npy"
    return "npz" if head[:4] in (MAGIC, b"PK\x05\x06") else ""


def read_npy(path: str | Path, *, name: str = "array", mmap: bool = True) -> np.ndarray:
    """Read the array of an .npy file, or map it read-only."""
    path = existing_file(path, name)
    size = path.stat().st_size
    what = f"{name}: {path}"
    with path.open("rb") as file:
        header = read_head(file, what)
        _check_length(header, size - header.length, what)
        if mmap:
            return _part(MemoryMap(file.fileno(), 0, access=ACCESS_READ), 0, header)
        return _read_data(file, header, what)


def read_npz(
    path: str | Path, *, name: str = "arrays", wanted: tuple[str, ...] | None = None, mmap: bool = True
) -> dict[str, np.ndarray]:
    """Read the ``wanted`` members that an .npz file has (None: all). ``mmap`` maps uncompressed ones read-only."""
    path = existing_file(path, name)
    what = f"{name}: {path}"
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            found = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            members = {info.filename.removesuffix(".npy"): info for info in found}
            members = {key: info for key, info in members.items() if wanted is None or key in wanted}
            size, unfolded = path.stat().st_size, sum(info.file_size for info in members.values())
            if unfolded > BOMB_BYTES and unfolded > BOMB_RATIO * size:
                raise InputError(
                    f"{what} expands to {unfolded:,} bytes, {unfolded // max(size, 1):,} times its size",
                    expected=f"at most {BOMB_RATIO} times",
                    received="probably a zip bomb",
                    fix="if this size is intended, save the file without compression",
                )
            whole = MemoryMap(file.fileno(), 0, access=ACCESS_READ) if mmap else None  # once for all members
            return {key: _read_member(whole, archive, info, what) for key, info in members.items()}
    except InputError:
        raise
    except NotImplementedError as error:
        raise InputError(f"{what} cannot be read", expected="an .npz as numpy writes it", received=str(error)) from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, EOFError, OverflowError, ValueError) as error:
        raise damaged(what, str(error)) from None


def read_head(file: IO[bytes], what: str) -> Head:
    """Read the header of a numeric array. Afterwards, the file is positioned at the beginning of the data."""
    start = file.read(8)
    if start[:6] != npy_format.MAGIC_PREFIX or start[6:] not in _WIDTHS:
        raise damaged(what, f"it begins with {start!r}, as no .npy does")
    width = _WIDTHS[start[6:]]
    length = int.from_bytes(file.read(width), "little")
    text = file.read(min(length, _LONGEST)).decode("latin1")
    found = _DICTIONARY.fullmatch(text)
    if found is None or None in found.group("descr", "fortran", "shape"):
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        raise damaged(what, f"its header cannot be read: {shown!r}")
    try:
        dtype = np.dtype(found["descr"])
    except (TypeError, ValueError) as error:
        raise damaged(what, f"its header cannot be read: {error}") from None
    if dtype.hasobject:
        raise InputError(
            f"{what} holds pickled Python objects, which are never loaded because they can run code",
            expected="numbers",
            received=f"an array of {dtype}",
            fix="save the matrix with scipy.sparse.save_npz, or numpy.save of an array of numbers",
        )
    shape = tuple(int(side) for side in re.findall(r"\d+", found["shape"]))
    room = math.prod(max(side, 1) for side in shape) * dtype.itemsize  # NumPy must be able to count it
    if dtype.itemsize == 0 or len(shape) > _MOST_SIDES or room > np.iinfo(np.int64).max:
        raise damaged(what, f"its shape is {shape}, its type {dtype}")
    return Head(shape, found["fortran"] == "True", dtype, len(start) + width + length)


def damaged(what: str, how: str) -> InputError:
    """Return the error to raise for a damaged file."""
    return InputError(
        f"{what} is damaged, truncated, or of another format",
        expected="a file written by scipy.sparse.save_npz, numpy.savez or numpy.save",
        received=how,
        fix="create or copy it again",
    )


def _read_member(whole: MemoryMap | None, archive: zipfile.ZipFile, info: zipfile.ZipInfo, what: str) -> np.ndarray:
    what = f"{what}, member {info.filename}"
    if info.flag_bits & 1:
        raise InputError(f"{what} is encrypted", expected="an .npz without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(
            f"{what} has an unsupported compression",
            expected="no compression, or numpy's",
            received=f"zip method {info.compress_type}",
            fix="save it again with scipy.sparse.save_npz(..., compressed=False)",
        )
    if whole is not None and info.compress_type == zipfile.ZIP_STORED:
        start = data_start(info, whole[info.header_offset : info.header_offset + HEAD_BYTES])
        header = read_head(BytesIO(whole[start : start + _LONGEST + 16]), what)
        _check_length(header, info.file_size - header.length, what)
        if start + info.file_size > len(whole):
            raise damaged(what, "it ends before its data do")
        return _part(whole, start, header)
    try:
        with archive.open(info) as file:
            header = read_head(file, what)
            _check_length(header, info.file_size - header.length, what)
            return _read_data(file, header, what)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise damaged(what, str(error)) from None


def _check_length(header: Head, available: int, what: str) -> None:
    """Check that the file has exactly as many bytes as the header implies, before memory is allocated for them."""
    if header.nbytes != available:
        raise damaged(
            what,
            f"its header describes {header.nbytes:,} bytes ({header.shape} of {header.dtype}), "
            f"and {max(available, 0):,} exist",
        )


def _part(whole: MemoryMap, start: int, header: Head) -> np.ndarray:
    """Return the mapped array whose header begins at byte ``start``."""
    if header.nbytes == 0:  # it may begin after the last byte
        empty = np.empty(header.shape, header.dtype)
        empty.flags.writeable = False
        return empty
    order: Literal["C", "F"] = "F" if header.fortran else "C"
    # A memmap of its own, because scipy copies an array that is a small part of a larger one; seen as a plain array,
    # because slicing a memmap is slower.
    part = np.ndarray.__new__(np.memmap, header.shape, header.dtype, whole, start + header.length, order=order)
    return np.asarray(part)


def _read_data(file: IO[bytes], header: Head, what: str) -> np.ndarray:
    flat = np.empty(math.prod(header.shape), header.dtype)
    room, done = flat.data.cast("B") if flat.size else memoryview(b""), 0
    while done < len(room):
        piece = file.read(min(len(room) - done, 1 << 24))
        if not piece:
            raise damaged(what, f"it ends after {done:,} of {len(room):,} bytes")
        room[done : done + len(piece)] = piece
        done += len(piece)
    file.read(1)  # at the end, zipfile compares the checksum
    return flat.reshape(header.shape, order="F" if header.fortran else "C")
