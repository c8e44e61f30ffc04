"""What the levels so far predict for the training documents, each rank for a range of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.collective.communicator import Communicator
from xmc_tf.collective.partition import balanced
from xmc_tf.collective.together import together
from xmc_tf.common.atomic import atomic_file
from xmc_tf.data import Features, save_matrix
from xmc_tf.data.matrices import index_type
from xmc_tf.data.npz_write import Stream, write_npz
from xmc_tf.linear.distributed.account import Account
from xmc_tf.linear.distributed.stored import open_matrix
from xmc_tf.linear.xlinear import XLinear


def predict_over_ranks(communicator: Communicator, model: XLinear, X: Features, target: Path, account: Account) -> None:
    """Writes what ``model.predict(X)`` gives; the file is there on return, on all ranks.

    Args:
        communicator: the ranks.
        model: the levels trained so far, their weights mapped.
        X: the training features, mapped.
        target: the file; one that is there already is taken as it is.
        account: receives the work.
    """
    if communicator.broadcast(target.exists()):
        return
    entries = np.ones(X.nr_rows) if X.sparse is None else np.diff(X.sparse.indptr) + 1 + X.nr_dense
    first, last = balanced(entries, communicator.size).range(communicator.rank)
    part = target.with_name(f"{target.stem}-{communicator.rank}.npz")

    def predict() -> None:
        with account.busy(1.0):
            save_matrix(part, model.predict(X.rows(slice(first, last)), threads=account.threads))

    together(communicator, predict)
    parts = [target.with_name(f"{target.stem}-{rank}.npz") for rank in range(communicator.size)]
    together(communicator, lambda: join_rows(parts, target) if communicator.rank == 0 else None)
    together(communicator, part.unlink)


def join_rows(paths: list[Path], target: Path) -> None:
    """Sets matrices of rows (CSR) one below the other, in pieces."""
    parts = [csr_matrix(open_matrix(path)) for path in paths]
    shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
    nr_entries = sum(int(part.nnz) for part in parts)
    index = index_type(shape, nr_entries)
    before = np.cumsum([0, *(int(part.nnz) for part in parts[:-1])])
    indptr = np.concatenate([[0], *(part.indptr[1:] + base for part, base in zip(parts, before, strict=True))])

    def pieces(name: str) -> Iterator[np.ndarray]:
        return (piece for part in parts for piece in _in_pieces(getattr(part, name)))

    members: dict[str, Any] = {
        "indices": Stream(np.dtype(index), nr_entries, lambda: pieces("indices")),
        "indptr": indptr.astype(index),
        "format": np.array(b"csr"),
        "shape": np.array(shape, dtype=np.int64),
        "data": Stream(np.dtype(np.float32), nr_entries, lambda: pieces("data")),
    }
    with atomic_file(target) as file:
        write_npz(file, members)


def _in_pieces(array: np.ndarray, length: int = 1 << 22) -> Iterator[np.ndarray]:
    for start in range(0, len(array), length):
        yield array[start : start + length]
