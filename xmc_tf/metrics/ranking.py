"""From scores to ranks: the best k labels of every document, and which of them are true."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as smat

from xmc_tf.common.compiled import njit
from xmc_tf.common.errors import InputError

NO_LABEL = -1
"""Fills the ranks of a document that has fewer predictions than ranks."""


@dataclass(frozen=True)
class LabelCounts:
    """What the top k hold of every label.

    Args:
        true: in how many documents the label is true.
        predicted: in how many top k it stands.
        found: in how many top k it stands rightly.
    """

    true: np.ndarray
    predicted: np.ndarray
    found: np.ndarray

    @property
    def f1(self) -> np.ndarray:
        """F1 of every label; 0 for one that is neither true nor predicted anywhere."""
        both = self.true + self.predicted
        return np.divide(2.0 * self.found, both, out=np.zeros(len(both)), where=both > 0)


def as_truth(matrix: smat.spmatrix | np.ndarray, name: str = "the truth") -> smat.csr_matrix:
    """The truth as a 0/1 CSR matrix with sorted labels: whatever is not zero is a label.

    Args:
        matrix: documents × labels, of any type.
        name: what to call it in an error.

    Returns:
        A matrix of its own, without explicit zeros and duplicates.
    """
    truth = _canonical(matrix, name)
    truth.data = (truth.data != 0).astype(np.float32)
    truth.eliminate_zeros()
    return truth


def top_labels(prediction: smat.spmatrix | np.ndarray, k: int, name: str = "the prediction") -> np.ndarray:
    """The best ``k`` labels of every document, best first; equal scores in the order of the label ids.

    The entries of a row may stand in any order. An explicit zero is a prediction with the score 0, and the
    scores of an entry that is stored twice are added, as scipy does. What is not stored is not predicted.

    Args:
        prediction: documents × labels, the scores.
        k: how many labels to keep.
        name: what to call the prediction in an error.

    Returns:
        int32 array (documents, k); ``NO_LABEL`` where a document has fewer predictions.
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
            received=f"{len(bad):,} entries that are NaN",
        )
    out = np.full((scores.shape[0], k), NO_LABEL, dtype=np.int32)
    _select(*_arrays(scores), scores.data.astype(np.float64), out)
    return out


def mark_hits(truth: smat.csr_matrix, top: np.ndarray) -> np.ndarray:
    """Which of the top labels are true: a bool array of the shape of ``top``.

    Args:
        truth: what ``as_truth`` gave.
        top: what ``top_labels`` gave.
    """
    hits = np.zeros(top.shape, dtype=np.bool_)
    _mark(*_arrays(truth), top, hits)
    return hits


def count_labels(truth: smat.csr_matrix, top: np.ndarray, hits: np.ndarray) -> LabelCounts:
    """Counts, for every label, where it is true, predicted, and both."""
    labels = truth.shape[1]
    return LabelCounts(
        true=np.bincount(truth.indices, minlength=labels),
        predicted=np.bincount(top[top != NO_LABEL], minlength=labels),
        found=np.bincount(top[hits], minlength=labels),
    )


def _canonical(matrix: smat.spmatrix | np.ndarray, name: str) -> smat.csr_matrix:
    """A CSR copy with sorted indices and without duplicates; the caller may write to it."""
    if isinstance(matrix, np.ndarray) and matrix.ndim != 2:
        raise InputError(
            f"{name} is not a matrix",
            expected="documents × labels",
            received=f"an array of shape {matrix.shape}",
        )
    rows = smat.csr_matrix(matrix, copy=True)
    # Built again because scipy trusts flags that a caller may have set on the original.
    rows = smat.csr_matrix((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    rows.sum_duplicates()
    return rows


def _arrays(matrix: smat.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """indptr and indices in the one type each that the kernels are compiled for."""
    return (
        np.require(matrix.indptr, np.int64, ["C", "W"]),
        np.require(matrix.indices, np.int32, ["C", "W"]),
    )


@njit(cache=True, nogil=True)
def _select(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """Keep the best of each row by insertion; rows come in label order, so that a tie keeps the lower id."""
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


@njit(cache=True, nogil=True)
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
