"""A matrix whose rows are computed in blocks by all ranks; an interrupted run computes only the missing blocks."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xmc_tf.common.progress import Progress
from xmc_tf.data.npz.writing import SINGLE, RowFile
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks


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
        found = {block: crc for record in records for block, crc in _blocks_in(record)} if self.path.exists() else {}
        if found:
            with RowFile(self.path) as file:
                known = [block for block in sorted(found) if block < len(self.counts)]
                done = [block for block in known if file.crc(*self.bounds[block : block + 2]) == found[block]]
        if not found or not done:
            for record in records:
                record.unlink()
            RowFile.create(self.path, (int(self.bounds[-1]), self.width), self.dtype)
            return np.zeros(0, np.int64)
        return np.array(done, np.int64)

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
                rows, start, lines = make(some, progress), 0, []
                for block in some:
                    first, last = map(int, self.bounds[block : block + 2])
                    crc = file.write(first, rows[start : start + last - first])
                    lines.append(f"{block} {crc}\n")
                    start += last - first
                file.sync()
                record.writelines(lines)
                record.flush()


def _blocks_in(record: Path) -> list[tuple[int, int]]:
    """Return the blocks that a rank has recorded as done, with their checksums; incomplete lines are ignored."""
    lines = (line.split(" ") for line in record.read_text(encoding="ascii").split("\n")[:-1])
    return [(int(fields[0]), int(fields[1])) for fields in lines if len(fields) == 2 and all(map(str.isdigit, fields))]
