"""A matrix whose rows are computed in blocks by all ranks; an interrupted run computes only the missing blocks."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from xmc_tf.common.progress import Progress
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.store.arrays import padded_head, read_head

SINGLE: np.dtype = np.dtype(np.float32)


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """The file of a matrix, and its blocks: the unit of progress, because the next run may have other ranks."""

    path: Path  # an .npy file, shared by all ranks
    bounds: np.ndarray  # the first row of each block, then the number of rows
    width: int
    counts: np.ndarray  # number of documents of each block
    dtype: np.dtype = SINGLE
    group: int = 1  # blocks computed together
    unit: str = "documents"

    def fill(self, make: Callable[[np.ndarray, Progress], np.ndarray], communicator: Communicator) -> None:
        """Write the missing blocks. ``make`` returns the rows of some blocks. All ranks must call this method."""
        done = on_first_rank(communicator, self._prepare)
        waiting = np.setdiff1d(np.arange(len(self.counts)), done)
        # Ranks take blocks in turn, so that all ranks get long documents, whatever the order of the documents.
        mine = waiting[communicator.rank :: communicator.size]
        run_on_all_ranks(communicator, lambda: self._fill(make, mine, communicator.rank))
        communicator.barrier()

    def _prepare(self) -> np.ndarray:
        """Create the file unless it already contains blocks of an earlier run; return the numbers of these blocks."""
        records = list(self.path.parent.glob("done.*"))
        done = {block for record in records for block in _blocks_in(record)} if self.path.exists() else set()
        if not done:
            for record in records:
                record.unlink()
            RowFile.create(self.path, (int(self.bounds[-1]), self.width), self.dtype)
            return np.zeros(0, np.int64)
        return np.array(sorted(done), np.int64)

    def _fill(self, make: Callable[[np.ndarray, Progress], np.ndarray], blocks: np.ndarray, rank: int) -> None:
        groups = np.array_split(blocks, -(-len(blocks) // self.group)) if len(blocks) else []
        quiet_s = 2.0 if rank == 0 else math.inf  # only rank 0 shows its progress
        with (
            RowFile(self.path) as file,
            (self.path.parent / f"done.{rank}").open("a", encoding="ascii") as record,
            Progress("encoding", int(self.counts[blocks].sum()), self.unit, quiet_s) as progress,
        ):
            record.write("\n")  # ends an incomplete last line
            for some in groups:
                rows, start = make(some, progress), 0
                for block in some:
                    first, last = map(int, self.bounds[block : block + 2])
                    file.write(first, rows[start : start + last - first])
                    start += last - first
                file.sync()
                record.writelines(f"{block} done\n" for block in some)
                record.flush()


def _blocks_in(record: Path) -> list[int]:
    """Return the blocks that a rank has recorded as done; an incomplete last line is ignored."""
    lines = (line.split(" ") for line in record.read_text(encoding="ascii").split("\n"))
    return [int(fields[0]) for fields in lines if len(fields) == 2 and fields[1] == "done"]


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

    def write(self, first: int, rows: np.ndarray) -> None:
        """Write consecutive rows, beginning at row ``first`` of the file."""
        # Not through a memory map: on a network disk, a page that two hosts write would lose the data of one of them.
        rest = np.ascontiguousarray(rows, self._dtype).reshape(-1).view(np.uint8).data
        offset = self._begin + first * self._row_bytes
        while rest:
            count = os.pwrite(self._file.fileno(), rest, offset)
            rest, offset = rest[count:], offset + count

    def sync(self) -> None:
        """Wait until the rows are on disk."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
