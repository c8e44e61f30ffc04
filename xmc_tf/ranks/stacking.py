"""Matrices one below the other in one file, each rank's rows below those of the ranks before it."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data.matrices import index_type, save_matrix
from xmc_tf.data.npz.reading import read_npy
from xmc_tf.data.npz.shared import Later, SharedNpy, SharedNpz
from xmc_tf.data.npz.stored import open_matrix
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.joint_files import PIECE_ENTRIES, Own, part_of, write_own
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

Rows: TypeAlias = csr_matrix | np.ndarray
_HELD_BYTES = 1 << 27  # a rank's, of one kind of matrix


class Pieces:
    """A rank's matrices for :func:`stack_rows`, as they come: held in memory while they are few, else on disk.

    Example:
        >>> with Pieces(folder / f"piece-{rank}", ".npz") as pieces:
        ...     for rows in made():
        ...         pieces.add(rows)
        ...     stack_rows(communicator, pieces.all, folder / "all.npz")

    Args:
        beginning: of the files' names.
        suffix: their kind: .npz for CSR, .npy for dense matrices.
    """

    def __init__(self, beginning: Path, suffix: str) -> None:
        self.all: list[Path | Rows] = []
        self._beginning, self._suffix, self._room = beginning, suffix, _HELD_BYTES

    def __enter__(self) -> "Pieces":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for piece in self.all:
            if isinstance(piece, Path):
                piece.unlink(missing_ok=True)
        self.all = []

    def add(self, rows: Rows) -> None:
        """Keeps one more."""
        arrays = [rows] if isinstance(rows, np.ndarray) else [rows.data, rows.indices, rows.indptr]
        self._room -= sum(array.nbytes for array in arrays)
        if self._room < 0:
            path = self._beginning.with_name(f"{self._beginning.name}-{len(self.all)}{self._suffix}")
            save_matrix(path, rows)
            self.all.append(path)
        else:
            self.all.append(rows)


class _Piece(NamedTuple):
    """A matrix, opened when it is wanted.

    Args:
        open: opens it.
        rows: how many it has.
        columns: how many it has.
        entries: how many numbers it holds.
    """

    open: Callable[[], Any]
    rows: int
    columns: int
    entries: int


def stack_rows(communicator: Communicator, mine: Sequence[Path | Rows], target: Path) -> None:
    """Sets matrices one below the other in one file, as ``save_matrix`` would write the whole; all ranks together.

    Example:
        >>> save_matrix(folder / f"{rank}.npz", rows_of(rank))
        >>> stack_rows(communicator, [folder / f"{rank}.npz"], folder / "all.npz")

    Args:
        communicator: the ranks.
        mine: this rank's matrices, which follow those of the ranks before it: CSR (.npz) or dense (.npy), in memory or
            as ``save_matrix`` writes them. Files stay.
        target: of the same kind; there whole or not at all. Some rank must have a matrix for it.
    """
    pieces = run_on_all_ranks(communicator, lambda: [_piece(one, target.suffix == ".npy") for one in mine])
    facts = (sum(one.rows for one in pieces), sum(one.entries for one in pieces), [one.columns for one in pieces])
    everyones = communicator.allgather(facts)
    shape = (sum(rows for rows, _, _ in everyones), next(columns[0] for _, _, columns in everyones if columns))
    entries = [count for _, count, _ in everyones]
    if target.suffix == ".npy":
        _stack_dense(communicator, pieces, shape, target)
    else:
        _stack_sparse(communicator, pieces, shape, entries, target)


def _piece(given: Path | Rows, dense: bool) -> _Piece:
    def load() -> Any:
        if not isinstance(given, Path):
            return given
        return read_npy(given, name="work file") if dense else open_matrix(given)

    rows = load()
    entries = int(rows.size) if isinstance(rows, np.ndarray) else int(rows.indptr[-1])
    return _Piece(load, rows.shape[0], rows.shape[1], entries)


def _stack_sparse(
    communicator: Communicator, pieces: Sequence[_Piece], shape: tuple[int, int], entries: Sequence[int], target: Path
) -> None:
    index = index_type(shape, sum(entries))
    file = SharedNpz(part_of(target), {
        "indices": Later(np.dtype(index), sum(entries)),
        "indptr": Later(np.dtype(index), shape[0] + 1),
        "format": np.array(b"csr"),
        "shape": np.array(shape, dtype=np.int64),
        "data": Later(np.dtype(np.float32), sum(entries)),
    })  # fmt: skip
    sizes = [piece.entries for piece in pieces]
    starts = list(accumulate(sizes, initial=sum(entries[: communicator.rank])))

    def ends(number: int) -> np.ndarray:
        return pieces[number].open().indptr[1:] + np.int64(starts[number])

    own = {
        "indices": _one_after_the_other(sizes, lambda number: pieces[number].open().indices),
        "indptr": _one_after_the_other([piece.rows for piece in pieces], ends),
        "data": _one_after_the_other(sizes, lambda number: pieces[number].open().data),
    }
    if communicator.rank == 0:  # which has the first row, and so the zero before the rows' ends
        own["indptr"] = _one_after_the_other(
            [1, *(piece.rows for piece in pieces)], lambda number: ends(number - 1) if number else np.zeros(1, index)
        )
    write_own(communicator, file, target, own)


def _stack_dense(communicator: Communicator, pieces: Sequence[_Piece], shape: tuple[int, int], target: Path) -> None:
    file = SharedNpy(part_of(target), np.dtype(np.float32), shape)
    own = _one_after_the_other([piece.entries for piece in pieces], lambda number: pieces[number].open())
    write_own(communicator, file, target, {SharedNpy.NAME: own})


def _one_after_the_other(lengths: Sequence[int], array: Callable[[int], np.ndarray]) -> Own:
    """Arrays as one; only those are opened that a range touches."""
    starts = [0, *accumulate(lengths)]

    def numbers(begin: int, end: int) -> Iterator[np.ndarray]:
        number = bisect_right(starts, begin) - 1
        while begin < end:
            flat = array(number).reshape(-1)
            stop = min(end, starts[number + 1])
            for a in range(begin, stop, PIECE_ENTRIES):
                yield flat[a - starts[number] : min(a + PIECE_ENTRIES, stop) - starts[number]]
            begin, number = max(begin, stop), number + 1

    return Own(starts[-1], numbers)
