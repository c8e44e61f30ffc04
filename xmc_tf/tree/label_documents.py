"""The transposed label matrix (labels × documents), read in pieces so that memory is that of a rank's share."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse, sparray, spmatrix

from xmc_tf.common.errors import InputError

PIECE_ENTRIES = 1 << 20


def label_matrix(Y: Any) -> csr_matrix:
    """Return the labels as CSR of float32, copied only if they are not; reject NaN and infinity."""
    if not issparse(Y):
        raise InputError(
            "the label matrix is not sparse", expected="a scipy sparse matrix, documents × labels",
            received=type(Y).__name__, fix="scipy.sparse.csr_matrix(Y) makes it one",
        )  # fmt: skip
    as_csr = csr_matrix(Y, dtype=np.float32)
    if not np.isfinite(np.sum(as_csr.data, dtype=np.float64)):
        row = int(np.searchsorted(as_csr.indptr, np.flatnonzero(~np.isfinite(as_csr.data))[0], side="right") - 1)
        problem = f"the labels of document {row} hold NaN or infinity"
        raise InputError(problem, expected="finite numbers", received="NaN or infinity")
    return as_csr


def documents_of_labels(Y: spmatrix | sparray, first: int = 0, last: int | None = None) -> csr_matrix:
    """Return labels × documents for labels in ``[first, last)``; the weights of a document have norm 1."""
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
    """Return labels × documents, with the documents of each label in order."""
    turned = labels.tocsc(copy=True).T
    turned.sum_duplicates()
    return turned


def inverse_norms(squares: np.ndarray) -> np.ndarray:
    """Return 1 / root of each number; 0 for 0."""
    norms = np.sqrt(squares)
    return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)


def _pieces(labels: csr_matrix, first: int, last: int) -> Iterator[tuple[range, slice]]:
    """Yield documents with about ``PIECE_ENTRIES`` labels (or one that has more), and where their entries are."""
    while first < last:
        limit = int(labels.indptr[first]) + PIECE_ENTRIES
        stop = min(last, max(first + 1, int(np.searchsorted(labels.indptr, limit, side="right")) - 1))
        yield range(first, stop), slice(int(labels.indptr[first]), int(labels.indptr[stop]))
        first = stop
