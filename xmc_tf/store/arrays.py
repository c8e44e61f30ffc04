"""Arrays as ``.npy`` files, and groups of them, such as a sparse matrix, as folders. Opened arrays are mapped."""

import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ
from mmap import mmap as MemoryMap  # noqa: N812  parameters are called mmap
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.lib import format as npy_format
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import existing_file
from xmc_tf.store.files import named_error, write_in_steps

# NumPy's own reader lets Python parse the header, which fails now and then in threads before Python 3.11.8
# (https://github.com/python/cpython/issues/106905, tests/data/test_npy_head.py).
_LONGEST = 1 << 16  # bytes of a header
_MOST_SIDES = 32
_LARGEST_INT32 = np.iinfo(np.int32).max
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


def read_npy(path: str | Path, *, name: str = "array", mmap: bool = True) -> np.ndarray:
    """Read the array of an .npy file, or map it read-only."""
    path = existing_file(path, name)
    size = path.stat().st_size
    what = f"{name}: {path}"
    with path.open("rb") as file:
        header = read_head(file, what)
        check_length(header, size - header.length, what)
        if mmap:
            return mapped_array(MemoryMap(file.fileno(), 0, access=ACCESS_READ), 0, header)
        return read_data(file, header, what)


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


def check_length(header: Head, available: int, what: str) -> None:
    """Check that the file has exactly as many bytes as the header implies, before memory is allocated for them."""
    if header.nbytes != available:
        raise damaged(
            what,
            f"its header describes {header.nbytes:,} bytes ({header.shape} of {header.dtype}), "
            f"and {max(available, 0):,} exist",
        )


def mapped_array(whole: MemoryMap, start: int, header: Head) -> np.ndarray:
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


def read_data(file: IO[bytes], header: Head, what: str) -> np.ndarray:
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


class Stream(NamedTuple):
    """An array that is computed piece by piece while it is written."""

    dtype: np.dtype
    shape: tuple[int, ...]
    pieces: Iterable[np.ndarray]


def padded_head(dtype: np.dtype, shape: tuple[int, ...], start: int, extra: int = 0) -> bytes:
    """Return the header of an .npy file that begins at byte ``start``, padded so that the data after it are aligned."""
    head = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    text = repr(head).encode("latin1")
    before = len(npy_format.MAGIC_PREFIX) + 2 + 2  # version and length
    text += b" " * (-(start + before + len(text) + 1) % 64 + extra) + b"\n"
    return npy_format.magic(1, 0) + len(text).to_bytes(2, "little") + text


def write_npy(path: Path, array: np.ndarray | Stream, mark: str = "") -> None:
    """Write an array that can be mapped. Spaces in its header (``mark``) identify a command's output."""
    pieces = array.pieces if isinstance(array, Stream) else [array]
    with path.open("wb", buffering=0) as file:
        at = file.write(padded_head(array.dtype, array.shape, 0, len(mark)))
        for piece in pieces:
            if piece.size:
                flat = np.ascontiguousarray(piece, array.dtype).reshape(-1).view(np.uint8).data
                write_in_steps(file, flat, at)
                at += len(flat)


class GrowingNpy:
    """Writes a flat array piece by piece; its length need not be known before."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self.dtype: np.dtype = np.dtype(dtype)
        self._file, self._length = path.open("wb"), 0
        self.complete()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, piece: np.ndarray) -> None:
        if piece.size:
            write_in_steps(self._file, np.ascontiguousarray(piece, self.dtype).view(np.uint8).data)
            self._length += piece.size

    def complete(self) -> None:
        """Write the header for what has been written so far, so that the file can be read."""
        self._file.seek(0)
        self._file.write(padded_head(self.dtype, (self._length,), 0))  # as long as that of any other length
        self._file.seek(0, os.SEEK_END)
        self._file.flush()


def save_group(folder: Path, arrays: Mapping[str, np.ndarray | Stream]) -> None:
    """Write arrays to a new folder, which replaces an older one. It is complete as soon as it exists."""
    part = folder.with_name(f".{folder.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name, array in arrays.items():
            write_npy(part / f"{name}.npy", array)
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise named_error(error, folder) from None


def open_group(folder: Path) -> dict[str, np.ndarray]:
    return {path.stem: read_npy(path) for path in sorted(folder.glob("*.npy"))}


def sparse_group(
    form: str, shape: tuple[int, int], nr_entries: int, data: Any, indices: Any, indptr: Any
) -> dict[str, np.ndarray | Stream]:
    """Return the arrays of a CSR or CSC matrix from the pieces of each. Its ``form`` is the name of the shape."""
    index: np.dtype = np.dtype(index_type(shape, nr_entries))
    return {
        form: np.array(shape, np.int64),
        "data": Stream(np.dtype(np.float32), (nr_entries,), data),
        "indices": Stream(index, (nr_entries,), indices),
        "indptr": Stream(index, (shape[form == "csc"] + 1,), indptr),
    }


def save_sparse(folder: Path, matrix: Any) -> None:
    m = matrix if matrix.format in ("csr", "csc") else csr_matrix(matrix)
    save_group(folder, sparse_group(m.format, m.shape, m.nnz, [m.data], [m.indices], [m.indptr]))


def open_sparse(folder: Path) -> csr_matrix | csc_matrix:
    """Map a sparse matrix. Its arrays are not checked: only files of this package are read."""
    arrays = open_group(folder)
    kind = csc_matrix if "csc" in arrays else csr_matrix
    matrix = kind(tuple(int(side) for side in arrays["csc" if "csc" in arrays else "csr"]), dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = arrays["data"], arrays["indices"], arrays["indptr"]
    if kind is csc_matrix:  # rows of CSR may be in order of score
        matrix.has_canonical_format = True
    return matrix


def index_type(shape: tuple[int, int], nr_entries: int) -> type[np.signedinteger]:
    """Return the type in which a sparse matrix's indices and pointers are saved: int32 if large enough, else int64."""
    return np.int32 if max(*shape, nr_entries) <= _LARGEST_INT32 else np.int64
