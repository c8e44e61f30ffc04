"""Solved sub-problems on disk, and joining them into a level's W. A training has thousands of these blocks, so they are
no archives, but a header (numbers of labels and weights) and arrays: labels, weights per label, features, weights.
"""

import math
import os
import resource
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.writing import write_in_steps
from xmc_tf.data.matrices import index_type
from xmc_tf.data.npz.writing import ArraySpec, SharedNpz
from xmc_tf.rankers.kernels.emit import WeightColumns
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.joint_files import unfinished_path, write_from_all_ranks
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

_MAGIC = b"xmc_tf solved 1\n"
_HEAD_BYTES = len(_MAGIC) + 16
_LABEL_BYTES, _WEIGHT_BYTES = 16, 8


class WeightBlock(NamedTuple):
    """The weight columns of some labels in a file."""

    path: Path
    labels: np.ndarray  # label of each column
    counts: np.ndarray  # number of weights of each column

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the features and the weights of all columns, one label after the other; memory-mapped."""
        nr_weights = int(self.counts.sum())
        if nr_weights == 0:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        start = _HEAD_BYTES + _LABEL_BYTES * len(self.labels)
        both = np.memmap(self.path, np.int32, "r", start, (2, nr_weights)).view(np.ndarray)
        return both[0], both[1].view(np.float32)


def write_block(path: Path, parts: Sequence[WeightColumns]) -> None:
    """Write the columns of a sub-problem's tasks atomically; only one thread may write each block."""
    labels = np.concatenate([part.labels for part in parts]).astype(np.int64)
    counts = np.concatenate([np.diff(part.indptr) for part in parts]).astype(np.int64)
    head = np.array([len(labels), counts.sum()], np.int64)
    # There are thousands of blocks: a fixed name needs half the system calls of a unique one.
    unfinished = f"{path.parent}/.{path.name}.part"
    try:
        with open(unfinished, "wb", buffering=0) as file:
            beginning = _MAGIC + head.tobytes() + labels.tobytes() + counts.tobytes()
            write_in_steps(file, memoryview(beginning))
            at = len(beginning)
            for name, dtype in (("features", np.int32), ("weights", np.float32)):
                for part in parts:
                    array = np.ascontiguousarray(getattr(part, name), dtype)
                    write_in_steps(file, array.data, at)
                    at += array.nbytes
        os.replace(unfinished, path)
    except OSError:
        Path(unfinished).unlink(missing_ok=True)
        raise


def open_block(path: Path) -> WeightBlock:
    """Read the labels of a block; raise InputError if it is damaged."""
    with path.open("rb") as file:
        head, size = file.read(_HEAD_BYTES), os.fstat(file.fileno()).st_size
        if len(head) < _HEAD_BYTES or not head.startswith(_MAGIC):
            raise InputError(f"{path} is not a solved sub-problem", fix="delete it; it will be solved again")
        nr_labels, nr_weights = map(int, np.frombuffer(head, np.int64, 2, len(_MAGIC)))
        whole = size == _HEAD_BYTES + _LABEL_BYTES * nr_labels + _WEIGHT_BYTES * nr_weights
        numbers = np.fromfile(file, np.int64, 2 * nr_labels if whole else 0)
    if not whole or numbers[nr_labels:].sum() != nr_weights:
        raise InputError(f"{path} is inconsistent with its header", fix="delete it; it will be solved again")
    return WeightBlock(path, numbers[:nr_labels], numbers[nr_labels:])


def is_solved(path: Path) -> bool:
    """Return whether a complete block exists; remove a damaged one."""
    try:
        open_block(path)
    except FileNotFoundError:
        return False
    except InputError:
        path.unlink()
        return False
    return True


_FIELDS = {"indices": 0, "data": 1}  # the matrix's arrays, and the index of their data in ``WeightBlock.columns``
_MOST_MAPPED = 4096  # maximum number of blocks mapped at a time, if the process may open so many files


class _Columns:
    """The positions of the labels' columns in the blocks."""

    def __init__(self, blocks: Sequence[WeightBlock], nr_labels: int) -> None:
        may_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = math.inf if may_open < 0 else may_open - len(os.listdir("/dev/fd"))
        mapped = int(min(_MOST_MAPPED, max(1, left // 2)))
        self._columns = lru_cache(mapped)(lambda number: blocks[number].columns())
        # Small pieces stay in the processor's cache between checksum and writing. But a piece may have labels of all
        # blocks, and blocks that are too many to stay open are opened again for every piece.
        self._piece = min(1 << 22, max(1 << 18, 512 * len(blocks)))
        self.block = np.full(nr_labels, -1, np.int32)
        self.start, counts = np.zeros(nr_labels, np.int64), np.zeros(nr_labels, np.int64)
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


def join_blocks(communicator: Communicator, paths: Sequence[Path], shape: tuple[int, int], target: Path) -> int:
    """Write the matrix of all columns, with the bytes of ``save_matrix``; return its number of weights. Collective."""
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
