"""One rank's rows in one ``.npy`` file: written in blocks, read in part, checked block by block.

A file is never in memory as a whole, neither here nor there. Its checksums stand beside it (in the manifest), one for
each block of rows, so that a reader of a few rows checks these and not the rest.
"""

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from xmc_tf.common.errors import InputError
from xmc_tf.common.wire.format import register
from xmc_tf.data.npz.npy_head import Head, read_head

# Bytes in a block: what is copied at a time, and what has at least to be read to check one row.
BLOCK_BYTES = 8 << 20


@register
@dataclass(frozen=True)
class ShardFile:
    """What a manifest says of one file.

    Args:
        file: its name in the folder.
        start: number of its first row in the whole table.
        stop: number of the row after its last.
        row_shape: what a row is: ``[dim]``, or ``[]`` for one number a row.
        dtype: of the values, as numpy spells it.
        block_rows: rows that share a checksum.
        checksums: CRC-32 of each block's bytes.
        bytes: length of the file.
    """

    file: str
    start: int
    stop: int
    row_shape: list[int]
    dtype: str
    block_rows: int
    checksums: list[int]
    bytes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array in the file."""
        return (self.stop - self.start, *self.row_shape)

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return dict(self.__dict__)


def write_shard(
    path: Path, read: Callable[[int, int], np.ndarray], start: int, stop: int, row_shape: tuple[int, ...], dtype: Any
) -> ShardFile:
    """Write the rows ``[start, stop)`` in blocks, down to the disk.

    Args:
        path: the file to make.
        read: gives the rows ``[i, j)`` of those, counted from 0.
        start: number of the first row in the whole table.
        stop: number of the row after the last.
        row_shape: what a row is.
        dtype: of the values.
    """
    dtype = np.dtype(dtype)
    rows = stop - start
    block_rows = rows_in_a_block(row_shape, dtype, BLOCK_BYTES)
    checksums = []
    # Not through a writable memory map: on a full disk that would be a signal, and this an OSError.
    with path.open("wb") as file:
        header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, *row_shape)}
        npy.write_array_header_1_0(file, header)
        for low, high in blocks(0, rows, block_rows):
            block = np.ascontiguousarray(read(low, high), dtype=dtype)
            raw = block.reshape(-1).view(np.uint8)
            checksums.append(zlib.crc32(raw.data))
            file.write(raw.data)
        file.flush()
        os.fsync(file.fileno())
        length = file.tell()
    return ShardFile(path.name, start, stop, list(row_shape), dtype.str, block_rows, checksums, length)


def read_rows(folder: Path, shard: ShardFile, start: int, stop: int, put: Callable[[int, np.ndarray], None]) -> None:
    """Read those of the rows ``[start, stop)`` that lie in a file, and no others but for their blocks' sake.

    Args:
        folder: where the file is.
        shard: what the manifest says of it.
        start: number of the first row wanted, in the whole table.
        stop: number of the row after the last.
        put: is given a row's number in the whole table, and the rows from there on.

    Raises:
        InputError: when the file is not there, or not the one that the manifest speaks of.
    """
    first, last = max(start, shard.start) - shard.start, min(stop, shard.stop) - shard.start
    if first >= last:
        return
    path = folder / shard.file
    head, width = check_shard(path, shard), int(np.prod(shard.row_shape, dtype=np.int64))
    for low, high in blocks(first // shard.block_rows * shard.block_rows, last, shard.block_rows, head.shape[0]):
        # Not out of a map: pages that were looked at stay with the process, in the end all of them.
        numbers = np.fromfile(
            path, head.dtype, (high - low) * width, offset=head.length + low * width * head.dtype.itemsize
        )
        block = numbers.reshape(-1, *shard.row_shape)
        if (
            len(block) != high - low
            or zlib.crc32(numbers.view(np.uint8).data) != shard.checksums[low // shard.block_rows]
        ):
            raise InputError(
                f"{path}, rows {low} to {high - 1} of the file: the content has changed since it was saved",
                expected=f"the checksum that {folder.parent.name}'s manifest has for them",
                fix="the file was damaged, or comes from another checkpoint: copy the whole checkpoint again",
            )
        put(shard.start + max(low, first), block[max(low, first) - low : min(high, last) - low])


def check_shard(path: Path, shard: ShardFile) -> Head:
    """Looks at whether the file can be the one, and tells where its rows begin."""
    check_length(path, shard.bytes)
    with path.open("rb") as file:
        head = read_head(file, f"shard: {path}")
    if head.shape != shard.shape or head.dtype != np.dtype(shard.dtype):
        raise InputError(
            f"{path} belongs to another checkpoint",
            expected=f"{shard.shape} of {shard.dtype}",
            received=f"{head.shape} of {head.dtype.str}",
            fix="copy the whole checkpoint again",
        )
    return head


def check_length(path: Path, length: int) -> None:
    """Says what is wrong with a checkpoint's file that is missing or has another length."""
    if not path.is_file():
        raise InputError(
            f"{path} is missing",
            expected="every file that the checkpoint's manifest names",
            fix="copy the whole checkpoint again; with several hosts, the folder must be on a shared disk",
        )
    if (found := path.stat().st_size) != length:
        raise InputError(
            f"{path} is {'cut short' if found < length else 'longer than it was'}",
            expected=f"{length:,} bytes",
            received=f"{found:,} bytes",
            fix="copy it again, or go back to an earlier checkpoint",
        )


def rows_in_a_block(row_shape: tuple[int, ...], dtype: Any, block_bytes: int) -> int:
    """How many rows make up a block."""
    return max(1, block_bytes // max(1, int(np.prod(row_shape, dtype=np.int64)) * np.dtype(dtype).itemsize))


def blocks(start: int, stop: int, rows: int, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut ``[start, stop)`` into blocks; the last ends at ``stop``, or runs on to its own end but not over ``end``."""
    for low in range(start, stop, rows):
        yield low, min(low + rows, stop if end is None else end)
