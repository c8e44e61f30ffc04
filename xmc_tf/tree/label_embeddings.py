"""Label embeddings from a label's documents, computed by one process or by all ranks."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, issparse, sparray, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data.features import Features, as_features
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import balanced
from xmc_tf.ranks.stacking import stack_rows
from xmc_tf.store.arrays import open_sparse, read_npy, save_sparse, write_npy
from xmc_tf.store.files import remove
from xmc_tf.tree.embedding_kernels import keep_strongest, scale_rows, sum_dense, sum_sparse
from xmc_tf.tree.threads import ThreadPool, even_cuts, read_only

DOCUMENT_PIECE_ENTRIES = 1 << 20


def label_matrix(Y: Any) -> csr_matrix:
    """Return the label matrix as CSR of float32, copied only if necessary; raise InputError for NaN and infinity."""
    if not issparse(Y):
        raise InputError(
            "the label matrix is not sparse", expected="a scipy sparse matrix, documents × labels",
            received=type(Y).__name__, fix="convert it: scipy.sparse.csr_matrix(Y)",
        )  # fmt: skip
    as_csr = csr_matrix(Y, dtype=np.float32)
    if not np.isfinite(np.sum(as_csr.data, dtype=np.float64)):
        row = int(np.searchsorted(as_csr.indptr, np.flatnonzero(~np.isfinite(as_csr.data))[0], side="right") - 1)
        problem = f"the labels of document {row} hold NaN or infinity"
        raise InputError(problem, expected="finite numbers", received="NaN or infinity")
    return as_csr


def documents_of_labels(Y: spmatrix | sparray, first: int = 0, last: int | None = None) -> csr_matrix:
    """Return a matrix of labels × documents for the labels ``[first, last)``. Over all labels, the weights of a
    document have norm 1.
    """
    labels = label_matrix(Y)
    last = labels.shape[1] if last is None else last
    weights, columns, counts = [np.zeros(0, np.float32)], [np.zeros(0, labels.indices.dtype)], [np.zeros(1, np.int64)]
    for rows, span in _pieces(labels, 0, labels.shape[0]):
        count, own, values = np.diff(labels.indptr[rows.start : rows.stop + 1]), labels.indices[span], labels.data[span]
        document = np.repeat(np.arange(len(rows)), count)
        squares = np.bincount(document, np.square(values, dtype=np.float64), len(rows))
        weight = np.repeat(inverse_norms(squares), count) * values
        wanted: slice | np.ndarray = slice(None)
        if (first, last) != (0, labels.shape[1]):
            wanted = (own >= first) & (own < last)
            count = np.bincount(document[wanted], minlength=len(rows))
        weights.append(weight[wanted])
        columns.append(own[wanted] - first)
        counts.append(count)
    kept = csr_matrix((labels.shape[0], last - first), dtype=np.float32)
    kept.indptr = np.cumsum(np.concatenate(counts), dtype=labels.indptr.dtype)
    kept.indices, kept.data = np.concatenate(columns), np.concatenate(weights)
    return transposed(kept)


def label_work(Y: csr_matrix, entries: np.ndarray, first: int, last: int) -> np.ndarray:
    """Return how many feature entries the documents in ``[first, last)`` contribute to the sum of each label."""
    work = np.zeros(Y.shape[1])
    for rows, span in _pieces(Y, first, last):
        counts = np.diff(Y.indptr[rows.start : rows.stop + 1])
        each = np.repeat(entries[rows.start - first : rows.stop - first], counts)
        work += np.bincount(Y.indices[span], each, Y.shape[1])
    return work.astype(np.int64)  # sums of whole numbers below 2**53 are exact


def transposed(labels: csr_matrix) -> csr_matrix:
    """Return the matrix of labels × documents, with the documents of each label in ascending order."""
    turned = labels.tocsc().T
    turned.sum_duplicates()
    return turned


def inverse_norms(squares: np.ndarray) -> np.ndarray:
    """Return 1 / sqrt(x) for each squared norm x, and 0 for 0."""
    norms = np.sqrt(squares)
    return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)


def _pieces(labels: csr_matrix, first: int, last: int) -> Iterator[tuple[range, slice]]:
    """Yield ranges of documents with about ``DOCUMENT_PIECE_ENTRIES`` labels (or a single document with more), and the
    slice of their entries.
    """
    while first < last:
        limit = int(labels.indptr[first]) + DOCUMENT_PIECE_ENTRIES
        stop = min(last, max(first + 1, int(np.searchsorted(labels.indptr, limit, side="right")) - 1))
        yield range(first, stop), slice(int(labels.indptr[first]), int(labels.indptr[stop]))
        first = stop


# Maximum number of entries that a rank sums at a time, counted before equal features are summed.
PIECE_ENTRIES = 1 << 21


def label_embeddings_over_ranks(
    communicator: Communicator, method: str, X: Features, Y: spmatrix, folder: Path, threads: int = -1
) -> Features:
    """Compute "pifa" or "pii" embeddings on all ranks, unless the shared ``folder`` already contains them, and
    memory-map the result.
    """
    ends = [""] if method == "pii" or X.dense is None else [".npy"] if X.sparse is None else ["", ".npy"]
    files = {end: folder / f"{method}-all{end}" for end in ends}
    if not communicator.broadcast(all(file.exists() for file in files.values())):
        share = _share(communicator, X, Y) if method == "pifa" else None
        pieces: dict[str, list[Path]] = {end: [] for end in ends}

        def make() -> None:
            for number, ours in enumerate(_pieces_of_rank(communicator, method, X, Y, threads, share)):
                for end, paths in pieces.items():
                    paths.append(folder / f"{method}-{communicator.rank}-{number}{end}")
                    if end:
                        write_npy(paths[-1], np.asarray(ours.dense, np.float32))
                    else:
                        save_sparse(paths[-1], ours.sparse)

        run_on_all_ranks(communicator, make)
        for end, paths in pieces.items():
            stack_rows(communicator, paths, files[end])
    return Features(open_sparse(files[""]) if "" in ends else None, read_npy(files[".npy"]) if ".npy" in ends else None)


def forget_label_embeddings(folder: Path) -> None:
    """Remove the files of :func:`label_embeddings_over_ranks`, which are not needed once the tree is built."""
    for method in ("pifa", "pii"):
        for path in folder.glob(f"{method}-*"):
            remove(path)


def _share(communicator: Communicator, X: Features, Y: spmatrix) -> np.ndarray:
    """Return the bounds of the pieces of this rank's labels. All ranks sum about the same number of feature entries."""
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
    """Yield the embeddings of this rank's labels, piece by piece. For ``pii``, rank 0 yields those of all labels."""
    if share is None:  # a transposition takes less time than distributing it
        if communicator.rank == 0:
            yield as_features(label_embedding(method, None, Y, threads=threads))
        return
    documents = documents_of_labels(Y, int(share[0]), int(share[-1]))
    strongest = strongest_of(X, label_matrix(Y))
    for a, b in pairwise((share - share[0]).tolist()):
        yield sum_documents(X, documents[a:b], threads, strongest)


Matrix: TypeAlias = csr_matrix | np.ndarray | Features
METHODS = ("pifa", "pii")

# Maximum number of entries of a range of labels, before equal features are summed: 128 MB of scratch memory a thread.
CHUNK_ENTRIES = 16_000_000
# If the labels' documents have more features than this altogether, embeddings keep only the strongest ones.
MANY_ENTRIES = 1 << 28
STRONGEST = 32


def label_embedding(
    method: str, X: spmatrix | sparray | np.ndarray | Features | None, Y: spmatrix | sparray,
    threads: int = -1,
) -> Matrix:  # fmt: skip
    """Return a matrix of labels × features with one embedding per label.

    ========  ============================================================================
    ``pifa``  the sum of the features of a label's documents, scaled to length 1
    ``pii``   a label's column of ``Y`` (its documents as features), scaled to length 1
    ========  ============================================================================

    For ``pifa``, the rows of ``Y`` are first scaled to length 1, so a document with many labels counts less for each.
    If the labels' documents have more than 268 million features altogether, only the 32 strongest features of each sum
    are kept. The result is a CSR matrix if all parts are sparse, an array if all parts are dense, and otherwise
    `Features`.
    """
    name = method.lower()
    if name not in METHODS:
        raise InputError("unknown label embedding", expected=f"one of {', '.join(METHODS)}", received=repr(method))
    labels = label_matrix(Y)
    if name == "pii":
        matrix = transposed(labels)
        begin, squares = matrix.indptr.astype(np.int64), np.cumsum(np.square(matrix.data, dtype=np.float64))
        factors = inverse_norms(np.diff(np.concatenate(([0.0], squares))[begin]))
        with ThreadPool(threads) as pool:
            cuts = even_cuts(matrix.indptr, pool.parts)
            pool.run(lambda low, high: scale_rows(low, high, begin, matrix.data, factors), cuts)
        return matrix
    if X is None:
        raise InputError(f"{name} needs the features of the documents", expected="a matrix X", received="None")
    features = as_features(X)
    if features.nr_rows != labels.shape[0]:
        raise InputError(
            "features and labels have different numbers of documents",
            expected=f"{labels.shape[0]:,} rows in X, as in Y", received=f"{features.nr_rows:,} rows",
        )  # fmt: skip
    found = sum_documents(features, documents_of_labels(labels), threads, strongest_of(features, labels))
    if found.dense is None:
        return found.sparse
    return found.dense if found.sparse is None else found


def strongest_of(features: Features, labels: csr_matrix) -> int | None:
    """Return the number of features that ``pifa`` keeps of each sum, or None for all. It depends only on the data."""
    return STRONGEST if are_many(features, labels) else None


def are_many(features: Features, labels: csr_matrix) -> bool:
    """Return whether the labels' documents have so many features that the rankers will have many weights."""
    if features.sparse is None:
        return False
    of_labels, of_features = (np.diff(m.indptr).astype(np.int64) for m in (labels, features.sparse))
    return bool(of_labels @ of_features > MANY_ENTRIES)


def sum_documents(
    features: Features, documents: csr_matrix, threads: int = -1, strongest: int | None = None
) -> Features:
    """Return the weighted sums of the features of each label's documents, scaled to length 1. ``documents`` is a matrix
    of labels × documents, and each sum depends only on its row.
    """
    starts, squares, sparse, dense = documents.indptr.astype(np.int64), np.zeros(documents.shape[0]), None, None
    rows, weights = read_only(documents.indices, np.int32), documents.data
    with ThreadPool(threads) as pool:
        if features.sparse is not None:
            sparse = _sum_sparse(features.sparse, starts, rows, weights, squares, pool, strongest)
        if features.dense is not None:
            dense = np.zeros((documents.shape[0], features.nr_dense), np.float32)
            values = read_only(features.dense, np.float32)
            pool.run(
                lambda low, high: sum_dense(low, high, starts, rows, weights, values, dense, squares),
                even_cuts(starts, pool.parts),
            )
        factors = inverse_norms(squares)
        if sparse is not None:
            begin = sparse.indptr.astype(np.int64)
            pool.run(lambda low, high: scale_rows(low, high, begin, sparse.data, factors), even_cuts(begin, pool.parts))
    if dense is not None:
        dense *= factors[:, None]
    return Features(sparse, dense)


def _sum_sparse(
    X: csr_matrix, starts: np.ndarray, rows: np.ndarray, weights: np.ndarray, squares: np.ndarray, pool: ThreadPool,
    strongest: int | None,
) -> csr_matrix:  # fmt: skip
    """Sum sparse rows label by label. The threads take ranges of labels with about the same work."""
    begin = X.indptr.astype(np.int64)
    entries = np.concatenate(([0], np.cumsum(np.diff(begin)[rows])))[starts]
    indices = read_only(read_only(X.indices, np.int32).view(np.uint32), np.uint32)
    values = read_only(X.data, np.float32)

    def sum_range(first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        # The number of sums is at most that of the entries and that of the features.
        most = int(np.minimum(np.diff(entries[first : last + 1]), X.shape[1]).sum())
        ends = np.empty(last - first, np.int64)
        out_indices, out_values = np.empty(most, np.int32), np.empty(most, np.float32)
        sum_sparse(
            first, last, X.shape[1], starts, rows, weights, begin, indices, values, ends, out_indices, out_values,
            squares,
        )  # fmt: skip
        if strongest is not None:
            keep_strongest(first, last - first, strongest, ends, out_indices, out_values, squares)
        return ends, out_indices[: ends[-1]].copy(), out_values[: ends[-1]].copy()

    parts = max(pool.parts, int(entries[-1] // CHUNK_ENTRIES))
    ranges = pool.run(sum_range, even_cuts(entries + np.arange(entries.size), parts))
    bases = np.cumsum([0, *(ends[-1] for ends, _, _ in ranges)])
    indptr = np.concatenate([[0], *(ends + base for (ends, _, _), base in zip(ranges, bases[:-1], strict=True))])
    result = csr_matrix((starts.size - 1, X.shape[1]), dtype=np.float32)
    result.indptr = indptr.astype(np.int32 if bases[-1] < 2**31 else np.int64)
    # A single part is used without a copy, because fresh memory costs as much as the work itself.
    result.indices = np.concatenate([part for _, part, _ in ranges]) if len(ranges) > 1 else ranges[0][1]
    result.data = np.concatenate([part for _, _, part in ranges]) if len(ranges) > 1 else ranges[0][2]
    result.has_canonical_format = True
    return result
