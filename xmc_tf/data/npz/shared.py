"""An .npz (or .npy) that several processes write, each some ranges of its arrays, on a disk that they share.

Where everything lies follows from the arrays' types and lengths. So one lays the file out, everybody writes what is
theirs in its place, and one puts heads and directory around it: byte for byte what ``write_npz`` writes.

    file.create()                                        one
    prints = file.fill("data", start, pieces)            everybody, for ranges as ``cuts`` gives them
    file.finish({"data": [… everybody's prints, in order]})   one
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.writing import write_in_steps
from xmc_tf.common.wire.format import register
from xmc_tf.data.npz.crc import crc_of_all
from xmc_tf.data.npz.writing import padded_head

# Two clients of a network disk may lose each other's bytes within one page of memory.
PAGE = 1 << 16


class Later(NamedTuple):
    """A flat array that is written in ranges.

    Args:
        dtype: of its numbers.
        length: how many there are.
    """

    dtype: np.dtype
    length: int


@register
class Print(NamedTuple):
    """What a range of bytes looks like."""

    crc: int
    length: int


class _Place(NamedTuple):
    begin: int
    head: bytes
    data: int
    end: int


class SharedNpz:
    """The file, laid out.

    Args:
        path: the file.
        members: the arrays by name, in order; the same in all processes, but for the contents of what is small.
    """

    def __init__(self, path: Path, members: Mapping[str, np.ndarray | Later]) -> None:
        self.path, self._members, self._places, at = path, dict(members), {}, 0
        for name, array in members.items():
            shape = (array.length,) if isinstance(array, Later) else array.shape
            data = at + len(_info(name, at).FileHeader(zip64=True))
            head = padded_head(array.dtype, shape, data)
            size = int(np.prod(shape)) * array.dtype.itemsize
            self._places[name] = _Place(at, head, data + len(head), data + len(head) + size)
            at = self._places[name].end
        self._end = at

    def create(self) -> None:
        """Make the file, empty and of its length."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("wb") as file:
            file.truncate(self._end)

    def cuts(self, name: str, inner: Sequence[int] | int) -> list[int]:
        """Bounds of ranges of an array, so that no two of them share a page.

        Args:
            name: which array.
            inner: where ranges should end, but for the last: they end at the next page. A number: so many even ranges.
        """
        array = self._members[name]
        assert isinstance(array, Later)
        return _cuts(self._places[name].data, array, inner)

    def fill(self, name: str, start: int, pieces: Iterable[np.ndarray]) -> Print:
        """Write a range of an array.

        Args:
            name: which array.
            start: where the range begins.
            pieces: its numbers.
        """
        return _fill(self.path, self._places[name].data, self._members[name].dtype, start, pieces)

    def finish(self, prints: Mapping[str, Sequence[Print]]) -> None:
        """Write all but the ranges.

        Args:
            prints: for each array that was written in ranges, what ``fill`` gave, in the ranges' order.
        """
        infos = []
        with self.path.open("r+b") as file:
            for name, array in self._members.items():
                place = self._places[name]
                if isinstance(array, Later):
                    body, told = b"", list(prints[name])
                else:
                    body, told = np.ascontiguousarray(array).tobytes(), []
                    told.append(Print(zlib.crc32(body), len(body)))
                info = _info(name, place.begin)
                info.CRC = crc_of_all([Print(zlib.crc32(place.head), len(place.head)), *told])
                info.file_size = info.compress_size = len(place.head) + sum(one.length for one in told)
                if place.data + sum(one.length for one in told) != place.end:
                    raise InputError(
                        f"{self.path}: the ranges of {name} are inconsistent", fix="delete the work folder"
                    )
                file.seek(place.begin)
                file.write(info.FileHeader(zip64=True) + place.head + body)
                infos.append(info)
            file.seek(self._end)
            with ZipFile(file, "w", ZIP_STORED) as archive:  # begins where the file stands: the directory alone
                archive.filelist.extend(infos)


class SharedNpy:
    """The same for a dense matrix in an .npy, which has no directory and no checksums.

    Args:
        path: the file.
        dtype: of the matrix.
        shape: of the matrix.
    """

    NAME = "rows"  # of its only array, which is written as a flat one

    def __init__(self, path: Path, dtype: np.dtype, shape: tuple[int, int]) -> None:
        self.path, self._head = path, padded_head(dtype, shape, 0)
        self._array = Later(dtype, shape[0] * shape[1])

    def create(self) -> None:
        """Make the file, with its head and of its length."""
        with self.path.open("wb") as file:
            file.write(self._head)
            file.truncate(len(self._head) + self._array.length * self._array.dtype.itemsize)

    def cuts(self, name: str, inner: Sequence[int] | int) -> list[int]:
        """Bounds of ranges of the matrix's numbers, as those of ``SharedNpz``."""
        return _cuts(len(self._head), self._array, inner)

    def fill(self, name: str, start: int, pieces: Iterable[np.ndarray]) -> Print:
        """Write a range of the matrix's numbers, row by row."""
        return _fill(self.path, len(self._head), self._array.dtype, start, pieces)

    def finish(self, prints: Mapping[str, Sequence[Print]]) -> None:
        """Sees to it that all was written."""
        if sum(one.length for one in prints[self.NAME]) != self._array.length * self._array.dtype.itemsize:
            raise InputError(f"{self.path}: the ranges do not add up", fix="delete the work folder")


def _cuts(data: int, array: Later, inner: Sequence[int] | int) -> list[int]:
    item = array.dtype.itemsize
    if isinstance(inner, int):
        inner = [array.length * part // inner for part in range(1, inner)]
    up = [(-(-(data + item * cut) // PAGE) * PAGE - data) // item for cut in inner]
    return [0, *(min(cut, array.length) for cut in up), array.length]


def _fill(path: Path, data: int, dtype: np.dtype, start: int, pieces: Iterable[np.ndarray]) -> Print:
    crc, length = 0, 0
    with path.open("r+b", buffering=0) as file:
        begin = file.seek(data + start * dtype.itemsize)
        for piece in pieces:
            flat = np.ascontiguousarray(piece, dtype).reshape(-1).view(np.uint8).data
            write_in_steps(file, flat, begin + length)
            crc, length = zlib.crc32(flat, crc), length + len(flat)
    return Print(crc, length)


def _info(name: str, begin: int) -> ZipInfo:
    """An array's entry in the archive, as ``ZipFile.open`` makes it."""
    info = ZipInfo(f"{name}.npy")
    info.CRC, info.header_offset, info.external_attr = 0, begin, 0o600 << 16
    return info
