"""Join blocks of columns into one level's W: each rank writes a part of the file, piece by piece."""

import math
import os
import resource
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data.matrices import index_type
from xmc_tf.data.npz.writing import ArraySpec, SharedNpz
from xmc_tf.rankers.distributed.blocks import WeightBlock, open_block
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.joint_files import unfinished_path, write_from_all_ranks
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

_FIELDS = {"indices": 0, "data": 1}  # the matrix's arrays, and the index of their data in ``WeightBlock.columns``
_MOST_MAPPED = 4096  # maximum number of blocks mapped at a time, if the process may open so many files


class _Columns:
    """The positions of the labels' columns in the blocks."""

    def __init__(self, blocks: Sequence[WeightBlock], nr_labels: int) -> None:
        mapped = int(min(_MOST_MAPPED, max(1, _files_left() // 2)))
        self._columns = lru_cache(mapped)(lambda number: blocks[number].columns())
        self._piece = _piece_entries(len(blocks))
        self.block = np.full(nr_labels, -1, np.int32)
        self.start = np.zeros(nr_labels, np.int64)
        counts = np.zeros(nr_labels, np.int64)
        for number, block in enumerate(blocks):
            if (self.block[block.labels] >= 0).any():
                raise InputError("two solved sub-problems contain the same label", fix="delete the work folder")
            self.block[block.labels] = number
            self.start[block.labels] = np.cumsum(block.counts) - block.counts
            counts[block.labels] = block.counts
        self.indptr = np.concatenate(([0], np.cumsum(counts)))

    def pieces(self, field: int, begin: int, end: int) -> Iterator[np.ndarray]:
        """Yield the entries ``begin`` to ``end`` of all columns by label, in pieces that share their memory."""
        room = np.empty(min(self._piece, end - begin), (np.int32, np.float32)[field])
        while begin < end:
            stop = min(end, begin + self._piece)
            for block, start, first, last in self._runs(begin, stop):
                room[first - begin : last - begin] = self._columns(block)[field][start : start + last - first]
            yield room[: stop - begin]
            begin = stop

    def _runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield runs of entries that are contiguous in one block: block, position in it, begin, end; block by block."""
        a = int(np.searchsorted(self.indptr, begin, side="right")) - 1
        b = int(np.searchsorted(self.indptr, end, side="left"))
        filled = np.flatnonzero(np.diff(self.indptr[a : b + 1])) + a
        block, start, low = self.block[filled], self.start[filled], self.indptr[filled]
        low, skipped = np.maximum(low, begin), np.maximum(begin - low, 0)
        start = start + skipped
        high = np.minimum(self.indptr[filled + 1], end)
        follows = (block[1:] == block[:-1]) & (start[1:] == start[:-1] + (high - low)[:-1])
        at = np.concatenate(([0], np.flatnonzero(~follows) + 1))
        runs = np.stack([block[at], start[at], low[at], np.append(low[at[1:]], end)], axis=1)
        yield from runs[np.argsort(runs[:, 0], kind="stable")].tolist()


def _files_left() -> float:
    """Return how many more files this process may open."""
    may_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if may_open < 0 else may_open - len(os.listdir("/dev/fd"))


def _piece_entries(nr_blocks: int) -> int:
    """Return the number of entries to copy at a time.

    Small pieces stay in the processor's cache between checksum and writing. But a piece may have labels of all blocks,
    and blocks that are too many to stay open are opened again for every piece.
    """
    return min(1 << 22, max(1 << 18, 512 * nr_blocks))


def join_blocks(communicator: Communicator, paths: Sequence[Path], shape: tuple[int, int], target: Path) -> int:
    """Write the matrix of all columns, with the bytes of ``save_matrix``; return its number of weights. Collective.

    Each label is in at most one block; a label in none has no weights.
    """
    columns = run_on_all_ranks(communicator, lambda: _Columns([open_block(path) for path in paths], shape[1]))
    nr_entries = int(columns.indptr[-1])
    index = index_type(shape, nr_entries)
    file = SharedNpz(unfinished_path(target), {
        "indices": ArraySpec(np.dtype(index), nr_entries),
        "indptr": columns.indptr.astype(index),
        "format": np.array(b"csc"),
        "shape": np.array(shape, dtype=np.int64),
        "data": ArraySpec(np.dtype(np.float32), nr_entries),
    })  # fmt: skip
    ranges = {name: partial(columns.pieces, field) for name, field in _FIELDS.items()}
    write_from_all_ranks(communicator, file, target, ranges)
    return nr_entries
