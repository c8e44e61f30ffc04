"""Blocks of columns become one level's W, in pieces: nobody holds more of it than a piece."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from xmc_tf.common.atomic import atomic_file
from xmc_tf.common.errors import InputError
from xmc_tf.data.matrices import index_type
from xmc_tf.data.npz_write import Stream, write_npz
from xmc_tf.linear.distributed.blocks import Block, open_block

PIECE_ENTRIES = 1 << 22  # 16 MB


class _Columns:
    """Where each label's column lies."""

    def __init__(self, blocks: Sequence[Block], nr_labels: int) -> None:
        self.blocks = blocks
        self.block = np.full(nr_labels, -1, np.int32)
        self.start = np.zeros(nr_labels, np.int64)
        counts = np.zeros(nr_labels, np.int64)
        for number, block in enumerate(blocks):
            if (self.block[block.labels] >= 0).any():
                raise InputError("two solved sub-problems hold the same label", fix="delete the work folder")
            self.block[block.labels] = number
            self.start[block.labels] = np.cumsum(block.counts) - block.counts
            counts[block.labels] = block.counts
        self.indptr = np.concatenate(([0], np.cumsum(counts)))

    def pieces(self, field: Literal["features", "weights"]) -> Iterator[np.ndarray]:
        """The entries of all columns in the order of the labels."""
        arrays = [getattr(block, field) for block in self.blocks]
        first, nr_labels = 0, len(self.block)
        while first < nr_labels:
            limit = self.indptr[first] + PIECE_ENTRIES
            last = max(first + 1, int(np.searchsorted(self.indptr, limit, side="right")) - 1)
            out = np.empty(self.indptr[last] - self.indptr[first], arrays[0].dtype if arrays else np.float32)
            for a, b in self._runs(first, last):
                begin, end = self.indptr[a] - self.indptr[first], self.indptr[b] - self.indptr[first]
                if begin < end:
                    start = self.start[a]
                    out[begin:end] = arrays[self.block[a]][start : start + end - begin]
            yield out
            first = last

    def _runs(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of labels whose columns follow one another in one block."""
        span = slice(first, last)
        block, start, end = self.block[span], self.start[span], (self.start + np.diff(self.indptr))[span]
        breaks = np.flatnonzero((block[1:] != block[:-1]) | (start[1:] != end[:-1])) + 1 + first
        yield from zip([first, *breaks.tolist()], [*breaks.tolist(), last], strict=True)


def join_blocks(paths: Sequence[Path], shape: tuple[int, int], target: Path) -> int:
    """Writes the matrix of all columns, as ``save_matrix`` would write it.

    Args:
        paths: the blocks; together they hold every label at most once. A label in none has no weights.
        shape: rows and labels of the matrix.
        target: the file.

    Returns:
        How many weights there are.
    """
    columns = _Columns([open_block(path) for path in paths], shape[1])
    nr_entries = int(columns.indptr[-1])
    index = index_type(shape, nr_entries)
    with atomic_file(target) as part:
        write_npz(part, {
            "indices": Stream(np.dtype(index), nr_entries, lambda: columns.pieces("features")),
            "indptr": columns.indptr.astype(index),
            "format": np.array(b"csc"),
            "shape": np.array(shape, dtype=np.int64),
            "data": Stream(np.dtype(np.float32), nr_entries, lambda: columns.pieces("weights")),
        })  # fmt: skip
    return nr_entries
