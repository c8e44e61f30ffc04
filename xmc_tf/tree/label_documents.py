"""The documents of labels: the label matrix turned round, all of it or only a range of the labels.

A rank that makes the embeddings of its labels goes over the label matrix in pieces and keeps what is of its labels, so
that its memory is that of its share and a pointer a document.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse, sparray, spmatrix

from xmc_tf.common.errors import InputError

_PIECE_ENTRIES = 1 << 20


class _Piece(NamedTuple):
    first: int
    last: int
    counts: np.ndarray
    labels: np.ndarray
    values: np.ndarray


def label_matrix(Y: Any) -> csr_matrix:
    """The labels as CSR of float32, not copied where they are; refuses what is not finite."""
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
            f"the labels of document {row} hold NaN or infinity", expected="finite numbers", received="others"
        )
    return as_csr


def documents_of_labels(Y: spmatrix | sparray, first: int = 0, last: int | None = None) -> csr_matrix:
    """Labels × documents: how much each document counts in its labels' sums; a document's weights have length 1.

    Args:
        Y: documents × labels.
        first: of the labels that are wanted.
        last: the one behind them; None: to the end.
    """
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
    """How many entries of the features the documents ``first`` to ``last`` bring to the sum of each label.

    Args:
        Y: documents × labels, as :func:`label_matrix` gives it.
        entries: how many each of these documents has.
        first: of the documents.
        last: the one behind them.
    """
    work = np.zeros(Y.shape[1])
    for piece in _pieces(Y, first, last):
        each = np.repeat(entries[piece.first - first : piece.last - first], piece.counts)
        work += np.bincount(piece.labels, each, Y.shape[1])
    return work.astype(np.int64)  # sums of whole numbers below 2**53 are exact


def transposed(labels: csr_matrix) -> csr_matrix:
    """Labels × documents, the documents of each label in order."""
    turned = labels.tocsc(copy=True).T
    turned.sum_duplicates()
    return turned


def inverse_norms(squares: np.ndarray) -> np.ndarray:
    """One over the root of each; 0 where there is nothing."""
    norms = np.sqrt(squares)
    return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)


def _pieces(labels: csr_matrix, first: int, last: int) -> Iterator[_Piece]:
    """Documents with about so many labels together, or one that has more."""
    while first < last:
        limit = int(labels.indptr[first]) + _PIECE_ENTRIES
        stop = min(last, max(first + 1, int(np.searchsorted(labels.indptr, limit, side="right")) - 1))
        span = slice(int(labels.indptr[first]), int(labels.indptr[stop]))
        counts = np.diff(labels.indptr[first : stop + 1])
        yield _Piece(first, stop, counts, labels.indices[span], labels.data[span])
        first = stop
