"""The files of a checkpoint: a ``.npy`` with the rows of one rank, and one ``.npz`` with all replicated arrays."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, TypeAlias
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy

from xmc_tf.common.errors import InputError
from xmc_tf.common.serialization import register
from xmc_tf.data.npz import read_npz
from xmc_tf.store.arrays import read_head
from xmc_tf.store.checksums import check_file, record_file

BLOCK_BYTES = 8 << 20  # of rows that are copied at once
REPLICATED = "replicated.npz"
_FIX = "copy the whole checkpoint again, or go back to an earlier one; with several hosts, it must be on a shared disk"

# An array, or a function that returns it.
ArraySource: TypeAlias = np.ndarray | Callable[[], np.ndarray]


@register
@dataclass(frozen=True)
class SavedFile:
    """A file in the data folder of a checkpoint, and the rows in it (none of the replicated arrays)."""

    file: str  # its name in the data folder
    bytes: int
    crc32: str
    start: int = 0
    stop: int = 0  # exclusive

    def checked(self, folder: Path) -> Path:
        """Return the path of the file; raise InputError if it has changed since it was saved."""
        path = folder / self.file
        check_file(path, {"bytes": self.bytes, "crc32": self.crc32}, _FIX)
        return path


def write_shard(
    path: Path, read: Callable[[int, int], np.ndarray], start: int, stop: int, row_shape: tuple[int, ...], dtype: Any
) -> SavedFile:
    """Write the rows ``[start, stop)`` and flush them to disk. ``read(low, high)`` counts rows from ``start``."""
    dtype = np.dtype(dtype)
    # On a full disk, a writable memory map would cause a signal instead of an OSError.
    with path.open("wb") as file:
        header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (stop - start, *row_shape)}
        npy.write_array_header_1_0(file, header)
        for low, high in blocks(0, stop - start, rows_per_block(row_shape, dtype, BLOCK_BYTES)):
            file.write(np.ascontiguousarray(read(low, high), dtype=dtype).reshape(-1).view(np.uint8).data)
        flush(file)
    return SavedFile(path.name, start=start, stop=stop, **record_file(path))


def read_rows(
    path: Path, shard: SavedFile, start: int, stop: int, row_shape: tuple[int, ...],
    put: Callable[[int, np.ndarray], None],
) -> None:  # fmt: skip
    """Read a file's rows that are in ``[start, stop)``. ``put`` gets each block's first row number, then the block."""
    first, last = max(start, shard.start) - shard.start, min(stop, shard.stop) - shard.start
    with path.open("rb") as file:
        head = read_head(file, f"shard: {path}")
    if head.shape != (shard.stop - shard.start, *row_shape):
        raise InputError(
            f"{path} does not have the shape of the table or slot",
            expected=f"{(shard.stop - shard.start, *row_shape)}",
            received=f"{head.shape}",
            fix="create the model and its optimizer as they were when they were saved",
        )
    width = prod(row_shape)
    for low, high in blocks(first, last, rows_per_block(row_shape, head.dtype, BLOCK_BYTES)):
        # Not a memory map, whose pages would stay in the process's memory.
        at = head.length + low * width * head.dtype.itemsize
        put(shard.start + low, np.fromfile(path, head.dtype, (high - low) * width, offset=at).reshape(-1, *row_shape))


def write_arrays(folder: Path, given: Mapping[str, ArraySource]) -> SavedFile:
    """Write arrays, or the results of functions, to one file, because each file must be flushed separately."""
    path = folder / REPLICATED
    with path.open("wb") as file:
        with ZipFile(file, "w") as archive:
            for name, one in given.items():
                value = np.asarray(one() if callable(one) else one)
                if value.dtype.kind not in "biufcSU":
                    raise InputError(
                        f"extra[{name!r}] cannot be saved",
                        expected="an array of numbers or text",
                        received=f"{value.dtype}",
                    )
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, value, allow_pickle=False)
        flush(file)
    return SavedFile(REPLICATED, **record_file(path))


def read_arrays(folder: Path, saved: SavedFile) -> dict[str, np.ndarray]:
    return read_npz(saved.checked(folder), name="replicated arrays", mmap=False)


def flush(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def rows_per_block(row_shape: tuple[int, ...], dtype: Any, block_bytes: int) -> int:
    return max(1, block_bytes // max(1, prod(row_shape) * np.dtype(dtype).itemsize))


def blocks(start: int, stop: int, rows: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of blocks of ``rows`` rows that cover ``[start, stop)``."""
    for low in range(start, stop, rows):
        yield low, min(low + rows, stop)
