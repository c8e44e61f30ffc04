"""Vertical stacking of the matrices of all ranks, in rank order. Rank 0 joins what the others have written."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.store.arrays import Stream, open_sparse, read_npy, save_group, sparse_group, write_npy
from xmc_tf.store.files import atomic_file, remove


def stack_rows(communicator: Communicator, mine: Sequence[Path], target: Path) -> None:
    """Stack the matrices of all ranks by rows, and remove them. At least one rank must have a matrix.

    ``target`` is an ``.npy`` file for dense matrices, and else the folder of a sparse matrix. All ranks must call this.
    """
    gathered = communicator.gather([str(path) for path in mine])
    every = [Path(path) for paths in gathered for path in paths]
    join = _join_dense if target.suffix == ".npy" else _join_sparse
    run_on_all_ranks(communicator, lambda: join(every, target) if communicator.rank == 0 else None)
    remove_from_all_ranks(communicator, mine)


def remove_from_all_ranks(communicator: Communicator, mine: Iterable[Path]) -> None:
    """Remove the files and folders that each rank lists. All ranks must call this."""

    def remove_mine() -> None:
        for path in mine:
            remove(path)

    run_on_all_ranks(communicator, remove_mine)


def _join_dense(paths: Sequence[Path], target: Path) -> None:
    shapes = [read_npy(path).shape for path in paths]
    shape = sum(rows for rows, _ in shapes), shapes[0][1]
    with atomic_file(target) as part:
        write_npy(part, Stream(np.dtype(np.float32), shape, map(read_npy, paths)))


def _join_sparse(paths: Sequence[Path], target: Path) -> None:
    # Opened again for each array, because each open file counts.
    sizes = [(matrix.shape, matrix.nnz) for matrix in map(open_sparse, paths)]
    shape = sum(rows for (rows, _), _ in sizes), sizes[0][0][1]
    starts = list(accumulate((count for _, count in sizes), initial=0))

    def each(array: Callable[[Any, int], np.ndarray]) -> Iterator[np.ndarray]:
        return (array(open_sparse(path), start) for path, start in zip(paths, starts, strict=False))

    pointers = chain([np.zeros(1, np.int32)], each(lambda matrix, start: matrix.indptr[1:] + np.int64(start)))
    data, indices = each(lambda matrix, _: matrix.data), each(lambda matrix, _: matrix.indices)
    save_group(target, sparse_group("csr", shape, starts[-1], data, indices, pointers))
