"""Vertical stacking of the matrices of all ranks, in rank order, in one file."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data.matrices import index_type, open_matrix, save_matrix
from xmc_tf.data.npz.reading import read_npy
from xmc_tf.data.npz.writing import ArraySpec, SharedNpy, SharedNpz
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.joint_files import PIECE_ENTRIES, OwnRange, unfinished_path, write_own_ranges
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

Rows: TypeAlias = csr_matrix | np.ndarray
_HELD_BYTES = 1 << 27  # per rank and kind of matrix


class Pieces:
    """The matrices of one rank that ``stack_rows`` stacks. The first are kept in memory; further ones go to disk."""

    def __init__(self, beginning: Path, suffix: str) -> None:
        self.all: list[Path | Rows] = []
        self._beginning, self._suffix, self._room = beginning, suffix, _HELD_BYTES

    def __enter__(self) -> "Pieces":
        return self

    def __exit__(self, *_: object) -> None:
        for piece in self.all:
            if isinstance(piece, Path):
                piece.unlink(missing_ok=True)
        self.all = []

    def add(self, rows: Rows) -> None:
        arrays = [rows] if isinstance(rows, np.ndarray) else [rows.data, rows.indices, rows.indptr]
        self._room -= sum(array.nbytes for array in arrays)
        if self._room < 0:
            path = self._beginning.with_name(f"{self._beginning.name}-{len(self.all)}{self._suffix}")
            save_matrix(path, rows)
            self.all.append(path)
        else:
            self.all.append(rows)


class _LazyMatrix(NamedTuple):
    """A matrix that is opened on demand."""

    open: Callable[[], Any]
    rows: int
    columns: int
    entries: int


def stack_rows(communicator: Communicator, mine: Sequence[Path | Rows], target: Path) -> None:
    """Stack the matrices of all ranks by rows in one file in the format of ``save_matrix``. All ranks must call this.

    At least one rank must have a matrix.
    """
    pieces = run_on_all_ranks(communicator, lambda: [_piece(one, target.suffix == ".npy") for one in mine])
    summary = (sum(one.rows for one in pieces), sum(one.entries for one in pieces), [one.columns for one in pieces])
    gathered = communicator.allgather(summary)
    shape = (sum(rows for rows, _, _ in gathered), next(columns[0] for _, _, columns in gathered if columns))
    entries = [count for _, count, _ in gathered]
    if target.suffix == ".npy":
        own = _concatenated([piece.entries for piece in pieces], lambda number: pieces[number].open())
        file = SharedNpy(unfinished_path(target), np.dtype(np.float32), shape)
        write_own_ranges(communicator, file, target, {SharedNpy.NAME: own})
    else:
        _stack_sparse(communicator, pieces, shape, entries, target)


def _piece(given: Path | Rows, dense: bool) -> _LazyMatrix:
    def load() -> Any:
        if not isinstance(given, Path):
            return given
        return read_npy(given, name="work file") if dense else open_matrix(given)

    rows = load()
    entries = int(rows.size) if isinstance(rows, np.ndarray) else int(rows.indptr[-1])
    return _LazyMatrix(load, rows.shape[0], rows.shape[1], entries)


def _stack_sparse(
    communicator: Communicator,
    pieces: Sequence[_LazyMatrix],
    shape: tuple[int, int],
    entries: Sequence[int],
    target: Path,
) -> None:
    index = index_type(shape, sum(entries))
    file = SharedNpz(unfinished_path(target), {
        "indices": ArraySpec(np.dtype(index), sum(entries)),
        "indptr": ArraySpec(np.dtype(index), shape[0] + 1),
        "format": np.array(b"csr"),
        "shape": np.array(shape, dtype=np.int64),
        "data": ArraySpec(np.dtype(np.float32), sum(entries)),
    })  # fmt: skip
    sizes = [piece.entries for piece in pieces]
    starts = list(accumulate(sizes, initial=sum(entries[: communicator.rank])))

    def ends(number: int) -> np.ndarray:
        return pieces[number].open().indptr[1:] + np.int64(starts[number])

    own = {
        "indices": _concatenated(sizes, lambda number: pieces[number].open().indices),
        "indptr": _concatenated([piece.rows for piece in pieces], ends),
        "data": _concatenated(sizes, lambda number: pieces[number].open().data),
    }
    if communicator.rank == 0:  # has the first row, and so the 0 at the start of indptr
        own["indptr"] = _concatenated(
            [1, *(piece.rows for piece in pieces)], lambda number: ends(number - 1) if number else np.zeros(1, index)
        )
    write_own_ranges(communicator, file, target, own)


def _concatenated(lengths: Sequence[int], array: Callable[[int], np.ndarray]) -> OwnRange:
    """Return the concatenation of arrays. Reading a range opens only the arrays that it overlaps."""
    starts = [0, *accumulate(lengths)]

    def numbers(begin: int, end: int) -> Iterator[np.ndarray]:
        number = bisect_right(starts, begin) - 1
        while begin < end:
            flat = array(number).reshape(-1)
            stop = min(end, starts[number + 1])
            for a in range(begin, stop, PIECE_ENTRIES):
                yield flat[a - starts[number] : min(a + PIECE_ENTRIES, stop) - starts[number]]
            begin, number = max(begin, stop), number + 1

    return OwnRange(starts[-1], numbers)
