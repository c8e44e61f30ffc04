"""A ``.npy`` file with the rows of one rank and a checksum per block of rows. Any range of rows can be read from it."""

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from xmc_tf.common.errors import InputError
from xmc_tf.common.serialization import register
from xmc_tf.data.npz.reading import Head, read_head

# The bytes of a block, which is copied at once, and must be read as a whole to check one of its rows.
BLOCK_BYTES = 8 << 20


@register
@dataclass(frozen=True)
class ShardFile:
    file: str  # its name in the data folder
    start: int
    stop: int  # exclusive
    row_shape: list[int]  # ``[dim]``, or ``[]`` for one number per row
    dtype: str  # as NumPy spells it
    block_rows: int  # rows per checksum
    checksums: list[int]  # the CRC-32 of each block
    bytes: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.stop - self.start, *self.row_shape)


def write_shard(
    path: Path, read: Callable[[int, int], np.ndarray], start: int, stop: int, row_shape: tuple[int, ...], dtype: Any
) -> ShardFile:
    """Write the rows ``[start, stop)`` and flush them to disk. ``read(low, high)`` counts rows from ``start``."""
    dtype = np.dtype(dtype)
    rows = stop - start
    block_rows = rows_per_block(row_shape, dtype, BLOCK_BYTES)
    checksums = []
    # On a full disk, a writable memory map would cause a signal instead of an OSError.
    with path.open("wb") as file:
        header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, *row_shape)}
        npy.write_array_header_1_0(file, header)
        for low, high in blocks(0, rows, block_rows):
            block = np.ascontiguousarray(read(low, high), dtype=dtype)
            raw = block.reshape(-1).view(np.uint8)
            checksums.append(zlib.crc32(raw.data))
            file.write(raw.data)
        flush(file)
        length = file.tell()
    return ShardFile(path.name, start, stop, list(row_shape), dtype.str, block_rows, checksums, length)


def read_rows(folder: Path, shard: ShardFile, start: int, stop: int, put: Callable[[int, np.ndarray], None]) -> None:
    """Read a file's rows that are in ``[start, stop)``. ``put`` gets each block's first row number, then the block."""
    first, last = max(start, shard.start) - shard.start, min(stop, shard.stop) - shard.start
    if first >= last:
        return
    path = folder / shard.file
    head, width = check_shard(path, shard), int(np.prod(shard.row_shape, dtype=np.int64))
    for low, high in blocks(first // shard.block_rows * shard.block_rows, last, shard.block_rows, head.shape[0]):
        # Not a memory map, whose pages would stay in the process's memory.
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
    """Check that a file has the length, shape and type of its description, and return its header."""
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
    if not path.is_file():
        raise InputError(
            f"{path} is missing",
            expected="every file that the checkpoint's manifest names",
            fix="copy the whole checkpoint again; with several hosts, the folder must be on a shared disk",
        )
    if (found := path.stat().st_size) != length:
        raise InputError(
            f"{path} is {'cut short' if found < length else 'longer than when it was saved'}",
            expected=f"{length:,} bytes",
            received=f"{found:,} bytes",
            fix="copy it again, or go back to an earlier checkpoint",
        )


def flush(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def rows_per_block(row_shape: tuple[int, ...], dtype: Any, block_bytes: int) -> int:
    return max(1, block_bytes // max(1, int(np.prod(row_shape, dtype=np.int64)) * np.dtype(dtype).itemsize))


def blocks(start: int, stop: int, rows: int, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the bounds of blocks of ``rows`` rows that cover ``[start, stop)``, cut at ``end`` (default: ``stop``)."""
    for low in range(start, stop, rows):
        yield low, min(low + rows, stop if end is None else end)
