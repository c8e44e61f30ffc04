"""Write .npz and .npy files that can be mapped, in one process (also piece by piece) or in several."""

import math
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy_format

from xmc_tf.common.errors import InputError
from xmc_tf.common.serialization import register
from xmc_tf.data.npz.reading import read_head
from xmc_tf.store.checksums import crc_of_all, crc_of_range
from xmc_tf.store.files import write_in_steps

# Two clients of a network disk may overwrite each other's bytes within one memory page.
PAGE = 1 << 16
SINGLE: np.dtype = np.dtype(np.float32)


class Stream(NamedTuple):
    """An array that is computed piece by piece while it is written; the pieces are flat."""

    dtype: np.dtype
    length: int
    pieces: Callable[[], Iterable[np.ndarray]]


def write_npz(path: Path, members: Mapping[str, np.ndarray | Stream], comment: str = "") -> None:
    """Write an uncompressed .npz file. Each array's data begin at a multiple of 64 bytes, so that it can be mapped."""
    with ZipFile(path, "w", ZIP_STORED) as archive:
        archive.comment = comment.encode()
        for name, array in members.items():
            shape = (array.length,) if isinstance(array, Stream) else array.shape
            pieces = array.pieces() if isinstance(array, Stream) else [array]
            with archive.open(ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                start = archive.fp.tell()  # type: ignore[union-attr]
                member.write(padded_head(array.dtype, shape, start))
                written = 0
                for piece in pieces:
                    if piece.size:
                        flat = np.ascontiguousarray(piece, array.dtype).reshape(-1).view(np.uint8).data
                        write_in_steps(member, flat)
                        written += piece.size
            if written != math.prod(shape):
                problem, expected = (
                    f"{path}: the pieces of {name} have the wrong length",
                    f"{math.prod(shape):,} numbers",
                )
                raise InputError(problem, expected=expected, received=f"{written:,}")


def padded_head(dtype: np.dtype, shape: tuple[int, ...], start: int, extra: int = 0) -> bytes:
    """Return the header of an .npy file that begins at byte ``start``, padded so that the data after it are aligned."""
    head = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    text = repr(head).encode("latin1")
    before = len(npy_format.MAGIC_PREFIX) + 2 + 2  # version and length
    text += b" " * (-(start + before + len(text) + 1) % 64 + extra) + b"\n"
    return npy_format.magic(1, 0) + len(text).to_bytes(2, "little") + text


class ArraySpec(NamedTuple):
    """The type and length of a flat array that is written range by range."""

    dtype: np.dtype
    length: int


@register
class RangeChecksum(NamedTuple):
    """The checksum and the length of a range of bytes."""

    crc: int
    length: int


class _Place(NamedTuple):
    begin: int
    head: bytes
    data: int
    end: int


class SharedNpz:
    """An .npz file that several processes write.

    One process calls ``create``, then all processes ``fill`` ranges between ``cuts``, then one calls ``finish``.
    """

    def __init__(self, path: Path, members: Mapping[str, np.ndarray | ArraySpec]) -> None:
        self.path, self._members, self._places, at = path, dict(members), {}, 0
        for name, array in members.items():
            shape = (array.length,) if isinstance(array, ArraySpec) else array.shape
            data = at + len(_info(name, at).FileHeader(zip64=True))
            head = padded_head(array.dtype, shape, data)
            size = int(np.prod(shape)) * array.dtype.itemsize
            self._places[name] = _Place(at, head, data + len(head), data + len(head) + size)
            at = self._places[name].end
        self._end = at

    def create(self) -> None:
        """Create the file with its final length."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("wb") as file:
            file.truncate(self._end)

    def cuts(self, name: str, inner: Sequence[int] | int) -> list[int]:
        """Return the bounds of ranges that share no memory page.

        ``inner`` is a list of approximate inner bounds, or the number of ranges, which then have similar lengths.
        """
        array = self._members[name]
        assert isinstance(array, ArraySpec)
        return _cuts(self._places[name].data, array, inner)

    def fill(self, name: str, start: int, pieces: Iterable[np.ndarray]) -> RangeChecksum:
        """Write a range of an array from element ``start`` on, and return its checksum."""
        return _fill(self.path, self._places[name].data, self._members[name].dtype, start, pieces)

    def finish(self, checksums: Mapping[str, Sequence[RangeChecksum]]) -> None:
        """Write everything except the ranges. ``checksums`` lists the checksums of each array's ranges in order."""
        infos = []
        with self.path.open("r+b") as file:
            for name, array in self._members.items():
                place = self._places[name]
                if isinstance(array, ArraySpec):
                    body, parts = b"", list(checksums[name])
                else:
                    body = np.ascontiguousarray(array).tobytes()
                    parts = [RangeChecksum(zlib.crc32(body), len(body))]
                info, length = _info(name, place.begin), sum(one.length for one in parts)
                info.CRC = crc_of_all([RangeChecksum(zlib.crc32(place.head), len(place.head)), *parts])
                info.file_size = info.compress_size = len(place.head) + length
                if place.data + length != place.end:
                    fix = "delete the work folder and rerun the command"
                    raise InputError(f"{self.path}: the ranges of {name} are inconsistent", fix=fix)
                file.seek(place.begin)
                file.write(info.FileHeader(zip64=True) + place.head + body)
                infos.append(info)
            file.seek(self._end)
            with ZipFile(file, "w", ZIP_STORED) as archive:  # begins at the current position: writes only the directory
                archive.filelist.extend(infos)


class SharedNpy:
    """An .npy file of a dense matrix that several processes write; it has the methods of ``SharedNpz``."""

    NAME = "rows"  # of its only array, which is written flat

    def __init__(self, path: Path, dtype: np.dtype, shape: tuple[int, int]) -> None:
        self.path, self._head = path, padded_head(dtype, shape, 0)
        self._array = ArraySpec(dtype, shape[0] * shape[1])

    def create(self) -> None:
        with self.path.open("wb") as file:
            file.write(self._head)
            file.truncate(len(self._head) + self._array.length * self._array.dtype.itemsize)

    def cuts(self, name: str, inner: Sequence[int] | int) -> list[int]:
        return _cuts(len(self._head), self._array, inner)

    def fill(self, name: str, start: int, pieces: Iterable[np.ndarray]) -> RangeChecksum:
        """Write a range of the flattened matrix from element ``start`` on, and return its checksum."""
        return _fill(self.path, len(self._head), self._array.dtype, start, pieces)

    def finish(self, checksums: Mapping[str, Sequence[RangeChecksum]]) -> None:
        """Check that all ranges were written."""
        if sum(one.length for one in checksums[self.NAME]) != self._array.length * self._array.dtype.itemsize:
            raise InputError(f"{self.path} is incomplete", fix="delete the work folder and rerun the command")


class RowFile:
    """A matrix in an .npy file. One rank creates it; several ranks can write to it at the same time."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            head = read_head(file, f"embeddings: {path}")
        self._file = path.open("r+b")
        self._begin, self._row_bytes, self._dtype = head.length, head.shape[1] * head.dtype.itemsize, head.dtype

    @staticmethod
    def create(path: Path, shape: tuple[int, int], dtype: np.dtype = SINGLE) -> None:
        """Create a file of zeros, replacing any existing file."""
        with path.open("wb") as file:
            file.write(padded_head(dtype, shape, 0))
            file.truncate(file.tell() + math.prod(shape) * dtype.itemsize)

    def write(self, first: int, rows: np.ndarray) -> int:
        """Write consecutive rows, beginning at row ``first`` of the file; return the CRC-32 of their bytes."""
        # Not through a memory map: on a network disk, a page that two hosts write would lose the data of one of them.
        whole = rest = np.ascontiguousarray(rows, self._dtype).reshape(-1).view(np.uint8).data
        offset = self._begin + first * self._row_bytes
        while rest:
            count = os.pwrite(self._file.fileno(), rest, offset)
            rest, offset = rest[count:], offset + count
        return zlib.crc32(whole)

    def crc(self, first: int, last: int) -> int:
        """Return the CRC-32 of the rows from ``first`` to ``last`` (exclusive)."""
        begin, end = (self._begin + row * self._row_bytes for row in (first, last))
        return crc_of_range(Path(self._file.name), begin, end)[0]

    def sync(self) -> None:
        """Wait until the rows are on disk."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _cuts(data: int, array: ArraySpec, inner: Sequence[int] | int) -> list[int]:
    item = array.dtype.itemsize
    if isinstance(inner, int):
        inner = [array.length * part // inner for part in range(1, inner)]
    up = [(-(-(data + item * cut) // PAGE) * PAGE - data) // item for cut in inner]
    return [0, *(min(cut, array.length) for cut in up), array.length]


def _fill(path: Path, data: int, dtype: np.dtype, start: int, pieces: Iterable[np.ndarray]) -> RangeChecksum:
    crc, length = 0, 0
    with path.open("r+b", buffering=0) as file:
        begin = file.seek(data + start * dtype.itemsize)
        for piece in pieces:
            flat = np.ascontiguousarray(piece, dtype).reshape(-1).view(np.uint8).data
            write_in_steps(file, flat, begin + length)
            crc, length = zlib.crc32(flat, crc), length + len(flat)
    return RangeChecksum(crc, length)


def _info(name: str, begin: int) -> ZipInfo:
    """Return the archive entry of an array, as ``ZipFile.open`` would create it."""
    info = ZipInfo(f"{name}.npy")
    info.CRC, info.header_offset, info.external_attr = 0, begin, 0o600 << 16
    return info
