"""Reading of untrusted .npz and .npy files; uncompressed members are mapped, so that processes share one copy."""

import math
import struct
import zipfile
import zlib
from mmap import ACCESS_READ
from mmap import mmap as MemoryMap  # noqa: N812  parameters are called mmap
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.lib import format as npy_format

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.archives import HEAD_BYTES, MAGIC, data_start
from xmc_tf.common.files.regular import existing_file
from xmc_tf.data.npz.npy_head import Head, damaged, read_head

# An archive that expands to more than this, and by more than this factor, is considered a zip bomb. Equal values shrink
# a thousandfold, but their indices do not: real matrices of labels shrink five to twentyfold.
BOMB_BYTES = 1 << 28
BOMB_RATIO = 100


def file_format(path: str | Path) -> Literal["npy", "npz", ""]:
    """Return the format by the first bytes of a file, whatever its name."""
    with open(path, "rb") as file:
        head = file.read(len(npy_format.MAGIC_PREFIX))
    if head == npy_format.MAGIC_PREFIX:
        return "npy"
    return "npz" if head[:4] in (MAGIC, b"PK\x05\x06") else ""


def read_npy(path: str | Path, *, name: str = "array", mmap: bool = True) -> np.ndarray:
    """Read or map (read-only) the array of an .npy file."""
    path = existing_file(path, name)
    size = path.stat().st_size
    what = f"{name}: {path}"
    with path.open("rb") as file:
        header = read_head(file, what)
        _check_length(header, size - header.length, what)
        return _part(_mapped(file), 0, header) if mmap else _read_data(file, header, what)


def read_npz(
    path: str | Path, *, name: str = "arrays", wanted: tuple[str, ...] | None = None, mmap: bool = True
) -> dict[str, np.ndarray]:
    """Read the ``wanted`` members of an .npz file that exist (None: all); ``mmap``: map uncompressed ones read-only."""
    path = existing_file(path, name)
    what = f"{name}: {path}"
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = {
                info.filename.removesuffix(".npy"): info
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
            members = {key: info for key, info in members.items() if wanted is None or key in wanted}
            _refuse_bomb(list(members.values()), path.stat().st_size, what)
            whole = _mapped(file) if mmap else None  # once for all members
            return {key: _read_member(whole, archive, info, what) for key, info in members.items()}
    except (zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, EOFError, OverflowError) as error:
        raise damaged(what, str(error)) from None
    except NotImplementedError as error:
        raise InputError(f"{what} cannot be read", expected="an .npz as numpy writes it", received=str(error)) from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise damaged(what, str(error)) from None


def _read_member(whole: MemoryMap | None, archive: zipfile.ZipFile, info: zipfile.ZipInfo, what: str) -> np.ndarray:
    what = f"{what}, member {info.filename}"
    if info.flag_bits & 1:
        raise InputError(f"{what} is encrypted", expected="an .npz without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(
            f"{what} is compressed in an unusual way",
            expected="no compression, or numpy's",
            received=f"zip method {info.compress_type}",
            fix="save it again with scipy.sparse.save_npz(..., compressed=False)",
        )
    if whole is not None and info.compress_type == zipfile.ZIP_STORED:
        start = data_start(info, whole[info.header_offset : info.header_offset + HEAD_BYTES])
        header = read_head(_Bytes(whole, start), what)
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
    """Check, before memory is allocated, that the file has exactly the bytes that shape and type require."""
    if header.nbytes != available:
        raise damaged(
            what,
            f"its header describes {header.nbytes:,} bytes ({header.shape} of {header.dtype}), "
            f"and {max(available, 0):,} exist",
        )


class _Bytes:
    """A mapped file that can be read."""

    def __init__(self, whole: MemoryMap, start: int) -> None:
        self._whole, self._at = whole, start

    def read(self, count: int, /) -> bytes:
        piece = self._whole[self._at : self._at + count]
        self._at += len(piece)
        return piece


def _mapped(file: IO[bytes]) -> MemoryMap:
    return MemoryMap(file.fileno(), 0, access=ACCESS_READ)


def _part(whole: MemoryMap, start: int, header: Head) -> np.ndarray:
    """Return the mapped array whose header is at ``start``."""
    if header.nbytes == 0:  # it may begin after the last byte
        return _read_only(np.empty(header.shape, header.dtype))
    order: Literal["C", "F"] = "F" if header.fortran else "C"
    # A memmap, as numpy makes it: scipy copies an array that is a small part of a larger array. And a plain array on
    # top of it, because slicing a memmap is slower.
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


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _refuse_bomb(members: list[zipfile.ZipInfo], size: int, what: str) -> None:
    """Raise an error for a zip bomb, by the sum over all members: one member may shrink a thousandfold."""
    unfolded = sum(info.file_size for info in members)
    if unfolded > BOMB_BYTES and unfolded > BOMB_RATIO * size:
        raise InputError(
            f"{what} expands to {unfolded:,} bytes, {unfolded // max(size, 1):,} times its size",
            expected=f"at most {BOMB_RATIO} times",
            received="probably a zip bomb",
            fix="if it is intended, save it without compression",
        )
