"""Label embeddings over ranks: each makes those of a range of labels, and a file holds them all."""

from pathlib import Path

import numpy as np
from scipy.sparse import spmatrix

from xmc_tf.collective.communicator import Communicator
from xmc_tf.collective.partition import balanced
from xmc_tf.collective.together import together
from xmc_tf.data import Features, as_features, save_matrix
from xmc_tf.data.npz import read_npy
from xmc_tf.data.stored import open_matrix, stack_rows
from xmc_tf.tree.label_embeddings import documents_of_labels, label_embedding, sum_documents


def label_embeddings_over_ranks(
    communicator: Communicator, method: str, X: Features, Y: spmatrix, folder: Path, threads: int = -1
) -> Features:
    """What ``label_embedding(method, X, Y)`` gives, made by all ranks and mapped into memory.

    Args:
        communicator: the ranks.
        method: "pifa" or "pii".
        X: documents × features, best mapped: a rank reads the documents of its labels.
        Y: documents × labels.
        folder: shared by all ranks; the embeddings stay there, and are taken as they are where they are there.
        threads: of this rank.
    """
    suffixes = [".npz"] if method == "pii" or X.dense is None else [".npy"] if X.sparse is None else [".npz", ".npy"]
    if not communicator.broadcast(all(_file(folder, method, "all", suffix).exists() for suffix in suffixes)):
        ranks = 1 if method == "pii" else communicator.size  # a transposition: done before it could be shared out

        def make() -> None:
            if communicator.rank >= ranks:
                return
            ours = _of_range(communicator, X, Y, threads) if method == "pifa" else _of_all(method, Y, threads)
            for suffix in suffixes:
                part = ours.sparse if suffix == ".npz" else ours.dense
                save_matrix(_file(folder, method, communicator.rank, suffix), part)

        def stack() -> None:
            for suffix in suffixes:
                parts = [_file(folder, method, rank, suffix) for rank in range(ranks)]
                stack_rows(parts, _file(folder, method, "all", suffix))
                for part in parts:
                    part.unlink()

        together(communicator, make)
        together(communicator, lambda: stack() if communicator.rank == 0 else None)
    sparse, dense = _file(folder, method, "all", ".npz"), _file(folder, method, "all", ".npy")
    return Features(
        open_matrix(sparse) if ".npz" in suffixes else None,
        read_npy(dense, name="label embeddings") if ".npy" in suffixes else None,
    )


def forget_label_embeddings(folder: Path) -> None:
    """Removes what :func:`label_embeddings_over_ranks` has left in a folder, when the tree is there."""
    for method in ("pifa", "pii"):
        for suffix in (".npz", ".npy"):
            for path in folder.glob(f"{method}-*{suffix}"):
                path.unlink()


def _file(folder: Path, method: str, part: int | str, suffix: str) -> Path:
    return folder / f"{method}-{part}{suffix}"


def _of_all(method: str, Y: spmatrix, threads: int) -> Features:
    return as_features(label_embedding(method, None, Y, threads=threads))


def _of_range(communicator: Communicator, X: Features, Y: spmatrix, threads: int) -> Features:
    """The embeddings of this rank's labels, which are as many as have its share of the documents' entries."""
    documents = documents_of_labels(Y)
    entries = np.full(X.nr_rows, X.nr_dense + 1) if X.sparse is None else np.diff(X.sparse.indptr) + X.nr_dense + 1
    before = np.concatenate(([0], np.cumsum(entries[documents.indices])))[documents.indptr]
    first, last = balanced(np.diff(before), communicator.size).range(communicator.rank)
    return sum_documents(X, documents[first:last], threads)
