"""The transposed label matrix (labels × documents), complete or for a range of labels.

A rank reads the label matrix in pieces, so its memory is that of its share plus one pointer per document.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse, sparray, spmatrix

from xmc_tf.common.errors import InputError

PIECE_ENTRIES = 1 << 20


class _DocumentLabels(NamedTuple):
    first: int
    last: int
    counts: np.ndarray
    labels: np.ndarray
    values: np.ndarray


def label_matrix(Y: Any) -> csr_matrix:
    """Return the labels as CSR of float32, copied only if they are not; reject NaN and infinity."""
    if not issparse(Y):
        raise InputError(
            "the label matrix is not sparse",
            expected="a scipy sparse matrix, documents × labels",
            received=type(Y).__name__,
            fix="scipy.sparse.csr_matrix(Y) makes it one",
        )
    as_csr = csr_matrix(Y, dtype=np.float32)
    if not np.isfinite(np.sum(as_csr.data, dtype=np.float64)):
        row = int(np.searchsorted(as_csr.indptr, np.flatnonzero(~np.isfinite(as_csr.data))[0], side="right") - 1)
        raise InputError(
            f"the labels of document {row} hold NaN or infinity", expected="finite numbers", received="NaN or infinity"
        )
    return as_csr


def documents_of_labels(Y: spmatrix | sparray, first: int = 0, last: int | None = None) -> csr_matrix:
    """Return labels × documents for labels in ``[first, last)``; the weights of a document have norm 1."""
    labels = label_matrix(Y)
    last = labels.shape[1] if last is None else last
    weights, columns, counts = [np.zeros(0, np.float32)], [np.zeros(0, labels.indices.dtype)], [np.zeros(1, np.int64)]
    for piece in _pieces(labels, 0, labels.shape[0]):
        document = np.repeat(np.arange(piece.last - piece.first), piece.counts)
        squares = np.bincount(document, np.square(piece.values, dtype=np.float64), piece.last - piece.first)
        weight = np.repeat(inverse_norms(squares), piece.counts) * piece.values
        wanted: slice | np.ndarray = slice(None)
        if (first, last) != (0, labels.shape[1]):
            wanted = (piece.labels >= first) & (piece.labels < last)
            piece = piece._replace(counts=np.bincount(document[wanted], minlength=piece.last - piece.first))
        weights.append(weight[wanted])
        columns.append(piece.labels[wanted] - first)
        counts.append(piece.counts)
    kept = csr_matrix((labels.shape[0], last - first), dtype=np.float32)
    kept.indptr = np.cumsum(np.concatenate(counts), dtype=labels.indptr.dtype)
    kept.indices, kept.data = np.concatenate(columns), np.concatenate(weights)
    return transposed(kept)


def label_work(Y: csr_matrix, entries: np.ndarray, first: int, last: int) -> np.ndarray:
    """Return how many feature entries the documents in ``[first, last)`` contribute to the sum of each label."""
    work = np.zeros(Y.shape[1])
    for piece in _pieces(Y, first, last):
        each = np.repeat(entries[piece.first - first : piece.last - first], piece.counts)
        work += np.bincount(piece.labels, each, Y.shape[1])
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


def _pieces(labels: csr_matrix, first: int, last: int) -> Iterator[_DocumentLabels]:
    """Yield ranges of documents with about ``PIECE_ENTRIES`` labels, or one document that has more."""
    while first < last:
        limit = int(labels.indptr[first]) + PIECE_ENTRIES
        stop = min(last, max(first + 1, int(np.searchsorted(labels.indptr, limit, side="right")) - 1))
        span = slice(int(labels.indptr[first]), int(labels.indptr[stop]))
        counts = np.diff(labels.indptr[first : stop + 1])
        yield _DocumentLabels(first, stop, counts, labels.indices[span], labels.data[span])
        first = stop
