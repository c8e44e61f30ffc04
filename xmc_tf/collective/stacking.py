"""Matrices on disk that all ranks write together, each a part, so that none waits for one that does it for all."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.collective.communicator import Communicator
from xmc_tf.collective.together import together
from xmc_tf.data.matrices import index_type
from xmc_tf.data.npz import read_npy
from xmc_tf.data.npz_shared import Later, Print, SharedNpy, SharedNpz
from xmc_tf.data.stored import open_matrix

PIECE_ENTRIES = 1 << 22  # 16 MB

# Gives the numbers from one place of an array to another, piece by piece.
Range = Callable[[int, int], Iterator[np.ndarray]]


def write_together(
    communicator: Communicator, file: SharedNpz | SharedNpy, target: Path, ranges: Mapping[str, Range]
) -> None:
    """Writes a file, each rank a range of every large array; it is there on return, whole, on all ranks.

    Args:
        communicator: the ranks.
        file: laid out the same on all ranks, under a name of its own.
        target: the name that it gets.
        ranges: by the arrays' names, what makes their numbers.
    """
    first, rank = communicator.rank == 0, communicator.rank
    together(communicator, lambda: file.create() if first else None)

    def fill() -> dict[str, Print]:
        prints = {}
        for name, numbers in ranges.items():
            begin, end = file.cuts(name, communicator.size)[rank : rank + 2]
            prints[name] = file.fill(name, begin, numbers(begin, end))
        return prints

    everyones = communicator.allgather(together(communicator, fill))

    def finish() -> None:
        file.finish({name: [prints[name] for prints in everyones] for name in ranges})
        file.path.replace(target)

    together(communicator, lambda: finish() if first else None)


def part_of(target: Path) -> Path:
    """What a file is called until it is whole; what a run that was killed has left there is written over."""
    return target.with_name(f".{target.name}.part")


def remove_together(communicator: Communicator, mine: Iterable[Path]) -> None:
    """Removes files, each rank some."""

    def remove() -> None:
        for path in mine:
            path.unlink(missing_ok=True)

    together(communicator, remove)


class _Piece(NamedTuple):
    path: Path
    rows: int
    columns: int
    entries: int


def stack_rows(communicator: Communicator, mine: Sequence[Path], target: Path) -> None:
    """Sets matrices one below the other in one file, as ``save_matrix`` would write the whole; all ranks together.

    Example:
        >>> save_matrix(folder / f"{rank}.npz", rows_of(rank))
        >>> stack_rows(communicator, [folder / f"{rank}.npz"], folder / "all.npz")

    Args:
        communicator: the ranks.
        mine: this rank's matrices, which follow those of the ranks before it: CSR (.npz) or dense (.npy), as
            ``save_matrix`` writes them. They stay.
        target: of the same kind; there whole or not at all. Some rank must have a matrix for it.
    """
    dense = target.suffix == ".npy"
    ours = together(communicator, lambda: [_piece(path, dense) for path in mine])
    pieces = [piece for several in communicator.allgather(ours) for piece in several]
    (_stack_dense if dense else _stack_sparse)(communicator, pieces, target)


def _piece(path: Path, dense: bool) -> _Piece:
    if dense:
        rows, columns = read_npy(path, name="work file").shape
        return _Piece(path, rows, columns, rows * columns)
    matrix = open_matrix(path)
    rows, columns = matrix.shape
    return _Piece(path, rows, columns, int(matrix.indptr[-1]))


def _stack_sparse(communicator: Communicator, pieces: Sequence[_Piece], target: Path) -> None:
    shape = (sum(piece.rows for piece in pieces), pieces[0].columns)
    sizes = [piece.entries for piece in pieces]
    index = index_type(shape, sum(sizes))
    before = [0, *accumulate(sizes)]

    def ends(number: int) -> np.ndarray:
        return open_matrix(pieces[number].path).indptr[1:] + np.int64(before[number])

    file = SharedNpz(part_of(target), {
        "indices": Later(np.dtype(index), sum(sizes)),
        "indptr": Later(np.dtype(index), shape[0] + 1),
        "format": np.array(b"csr"),
        "shape": np.array(shape, dtype=np.int64),
        "data": Later(np.dtype(np.float32), sum(sizes)),
    })  # fmt: skip
    write_together(communicator, file, target, {
        "indices": _one_after_the_other(sizes, lambda number: open_matrix(pieces[number].path).indices),
        "indptr": _one_after_the_other(
            [1, *(piece.rows for piece in pieces)], lambda number: ends(number - 1) if number else np.zeros(1, index)
        ),
        "data": _one_after_the_other(sizes, lambda number: open_matrix(pieces[number].path).data),
    })  # fmt: skip


def _stack_dense(communicator: Communicator, pieces: Sequence[_Piece], target: Path) -> None:
    file = SharedNpy(part_of(target), np.dtype(np.float32), (sum(piece.rows for piece in pieces), pieces[0].columns))
    write_together(communicator, file, target, {
        SharedNpy.NAME: _one_after_the_other(
            [piece.entries for piece in pieces], lambda number: read_npy(pieces[number].path, name="work file")
        )
    })  # fmt: skip


def _one_after_the_other(lengths: Sequence[int], array: Callable[[int], np.ndarray]) -> Range:
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

    return numbers
