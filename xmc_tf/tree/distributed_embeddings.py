"""Label embeddings over ranks: each rank computes those of a range of labels; a file holds them all."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.sparse import spmatrix

from xmc_tf.data import Features, as_features
from xmc_tf.data.npz.reading import read_npy
from xmc_tf.data.npz.stored import open_matrix
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import balanced
from xmc_tf.ranks.stacking import Pieces, stack_rows
from xmc_tf.tree.label_documents import documents_of_labels, label_matrix, label_work
from xmc_tf.tree.label_embeddings import label_embedding, strongest_of, sum_documents
from xmc_tf.tree.threads import even_cuts

# Maximum number of entries that a rank sums at a time, counted before equal features are summed.
PIECE_ENTRIES = 1 << 21


def label_embeddings_over_ranks(
    communicator: Communicator, method: str, X: Features, Y: spmatrix, folder: Path, threads: int = -1
) -> Features:
    """Compute ``label_embedding(method, X, Y)`` on all ranks and map the result into memory.

    Args:
        communicator: the ranks.
        method: "pifa" or "pii".
        X: documents × features, preferably mapped, because a rank reads the documents of its labels only.
        Y: documents × labels.
        folder: shared by all ranks. The embeddings stay there; existing ones are used.
        threads: number of threads of this rank; -1: one per core.
    """
    suffixes = [".npz"] if method == "pii" or X.dense is None else [".npy"] if X.sparse is None else [".npz", ".npy"]
    if not communicator.broadcast(all(_file(folder, method, suffix).exists() for suffix in suffixes)):
        share = _share(communicator, X, Y) if method == "pifa" else None
        with ExitStack() as stack:
            pieces = {
                suffix: stack.enter_context(Pieces(folder / f"{method}-{communicator.rank}", suffix))
                for suffix in suffixes
            }

            def make() -> None:
                for ours in _pieces_of_rank(communicator, method, X, Y, threads, share):
                    for suffix in suffixes:
                        pieces[suffix].add(ours.sparse if suffix == ".npz" else ours.dense)

            run_on_all_ranks(communicator, make)
            for suffix in suffixes:
                stack_rows(communicator, pieces[suffix].all, _file(folder, method, suffix))
    sparse, dense = _file(folder, method, ".npz"), _file(folder, method, ".npy")
    return Features(
        open_matrix(sparse) if ".npz" in suffixes else None,
        read_npy(dense, name="label embeddings") if ".npy" in suffixes else None,
    )


def forget_label_embeddings(folder: Path) -> None:
    """Remove the files of :func:`label_embeddings_over_ranks`, which only the construction of the tree needs."""
    for method in ("pifa", "pii"):
        for suffix in (".npz", ".npy"):
            for path in folder.glob(f"{method}-*{suffix}"):
                path.unlink()


def _file(folder: Path, method: str, suffix: str) -> Path:
    return folder / f"{method}-all{suffix}"


def _share(communicator: Communicator, X: Features, Y: spmatrix) -> np.ndarray:
    """Return the bounds of pieces of this rank's labels, which together have its share of the documents' entries."""
    labels, size, rank = label_matrix(Y), communicator.size, communicator.rank
    first, last = (int(np.searchsorted(labels.indptr, labels.nnz * part // size)) for part in (rank, rank + 1))
    first, last = (0 if rank == 0 else first), (labels.shape[0] if rank == size - 1 else last)
    documents = np.ones(last - first, np.int64)
    entries = documents if X.sparse is None else documents + np.diff(X.sparse.indptr[first : last + 1])
    sparse, count = (communicator.allreduce_array(label_work(labels, one, first, last)) for one in (entries, documents))
    a, b = balanced(sparse + X.nr_dense * count, size).range(rank)
    # Dense features are summed immediately, sparse ones are held until all of a label's documents are read.
    before = np.concatenate(([0], np.cumsum(sparse[a:b] + X.nr_dense)))
    # Fewer, larger pieces, because each piece reads the row pointers of all documents.
    return a + even_cuts(before, 1 + int(before[-1]) // max(PIECE_ENTRIES, 4 * X.nr_rows)) if b > a else np.array([a])


def _pieces_of_rank(
    communicator: Communicator, method: str, X: Features, Y: spmatrix, threads: int, share: np.ndarray | None
) -> Iterator[Features]:
    """Yield the embeddings of this rank's labels, piece by piece."""
    if share is None:  # a transposition takes less time than distributing it
        if communicator.rank == 0:
            yield as_features(label_embedding(method, None, Y, threads=threads))
        return
    documents = documents_of_labels(Y, int(share[0]), int(share[-1]))
    strongest = strongest_of(X, label_matrix(Y))
    for a, b in pairwise((share - share[0]).tolist()):
        yield sum_documents(X, documents[a:b], threads, strongest)
