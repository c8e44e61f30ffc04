"""Rank labels by score: find the best k labels of each document, and the hits among them."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as smat

from xmc_tf.common.compiled import kernel
from xmc_tf.common.errors import InputError

NO_LABEL = -1
"""The label at ranks beyond a document's predictions."""


@dataclass(frozen=True)
class LabelCounts:
    """The number of documents for which each label is true, in the top k, or both."""

    true: np.ndarray  # number of documents for which the label is true
    predicted: np.ndarray  # number of documents with the label in the top k
    found: np.ndarray  # both

    @property
    def f1(self) -> np.ndarray:
        """The F1 of each label; 0 for labels that are neither true nor predicted."""
        both = self.true + self.predicted
        return np.divide(2.0 * self.found, both, out=np.zeros(len(both)), where=both > 0)


def as_truth(matrix: smat.spmatrix | np.ndarray, name: str = "the truth") -> smat.csr_matrix:
    """Return the true labels as a new, sorted CSR matrix of 0 and 1; every nonzero entry counts as a label."""
    truth = _canonical(matrix, name)
    truth.data = (truth.data != 0).astype(np.float32)
    truth.eliminate_zeros()
    return truth


def top_labels(prediction: smat.spmatrix | np.ndarray, k: int, name: str = "the prediction") -> np.ndarray:
    """Return the best ``k`` labels of each document, best first: int32 [documents, k], padded with ``NO_LABEL``.

    Ties are in the order of label ids. The matrix need not be sorted. An explicit zero is a prediction with score 0;
    scores of duplicate entries are added, as in scipy.
    """
    if k < 1:
        raise InputError("k is too small", expected="at least 1", received=str(k))
    scores = _canonical(prediction, name)
    bad = np.flatnonzero(np.isnan(scores.data))
    if len(bad):
        row = int(np.searchsorted(scores.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"{name}: the score of document {row}, label {scores.indices[bad[0]]} is NaN",
            expected="a number in every stored entry",
            received=f"number of NaN entries: {len(bad):,}",
        )
    out = np.full((scores.shape[0], k), NO_LABEL, dtype=np.int32)
    _select(*_arrays(scores), scores.data.astype(np.float64), out)
    return out


def mark_hits(truth: smat.csr_matrix, top: np.ndarray) -> np.ndarray:
    """Return whether each of the top labels is true, as a bool array of the same shape as ``top``."""
    hits = np.zeros(top.shape, dtype=np.bool_)
    _mark(*_arrays(truth), top, hits)
    return hits


def count_labels(truth: smat.csr_matrix, top: np.ndarray, hits: np.ndarray) -> LabelCounts:
    """Count, for each label, the documents for which it is true, predicted, or both."""
    labels = truth.shape[1]
    return LabelCounts(
        true=np.bincount(truth.indices, minlength=labels),
        predicted=np.bincount(top[top != NO_LABEL], minlength=labels),
        found=np.bincount(top[hits], minlength=labels),
    )


def _canonical(matrix: smat.spmatrix | np.ndarray, name: str) -> smat.csr_matrix:
    """Return a writable CSR copy with sorted indices and without duplicates."""
    if isinstance(matrix, np.ndarray) and matrix.ndim != 2:
        raise InputError(
            f"{name} is not a matrix", expected="documents × labels", received=f"an array of shape {matrix.shape}",
        )  # fmt: skip
    rows = smat.csr_matrix(matrix, copy=True)
    # Built again, because scipy trusts flags that a caller may have set on the original.
    rows = smat.csr_matrix((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    rows.sum_duplicates()
    return rows


def _arrays(matrix: smat.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return indptr and indices in the types that the compiled kernels expect."""
    return (
        np.require(matrix.indptr, np.int64, ["C", "W"]),
        np.require(matrix.indices, np.int32, ["C", "W"]),
    )


@kernel
def _select(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """Select the best labels of each row by insertion. Rows are in label order, so that ties keep the lower id."""
    k = out.shape[1]
    best = np.empty(k, np.float64)
    for row in range(len(indptr) - 1):
        held = 0
        for entry in range(indptr[row], indptr[row + 1]):
            score = data[entry]
            if held == k and score <= best[k - 1]:
                continue
            place = held if held < k else k - 1
            while place > 0 and best[place - 1] < score:
                best[place] = best[place - 1]
                out[row, place] = out[row, place - 1]
                place -= 1
            best[place] = score
            out[row, place] = indices[entry]
            if held < k:
                held += 1


@kernel
def _mark(indptr: np.ndarray, indices: np.ndarray, top: np.ndarray, hits: np.ndarray) -> None:
    for row in range(top.shape[0]):
        for rank in range(top.shape[1]):
            label = top[row, rank]
            low, high = indptr[row], indptr[row + 1]
            while low < high:
                middle = (low + high) // 2
                if indices[middle] < label:
                    low = middle + 1
                else:
                    high = middle
            hits[row, rank] = low < indptr[row + 1] and indices[low] == label
