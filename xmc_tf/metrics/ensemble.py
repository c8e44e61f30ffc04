"""Combine several predictions into one. All methods but ``root_average`` are those of PECOS's CsrEnsembler."""

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as smat

from xmc_tf.common.errors import InputError
from xmc_tf.metrics.measures import check_shapes


def ensemble(way: str, predictions: Sequence[smat.spmatrix | np.ndarray]) -> smat.csr_matrix:
    """Combine several predictions into one with the labels of all of them; rows are sorted by descending score.

    ``average`` is the mean score, where missing labels count as 0, so scores must not be negative. ``root_average`` is
    the square of the mean of the square roots, which favors labels that all predictions contain. ``rank_average`` is
    the mean of points: a document's first label gets as many points as the longest row has labels, each further label
    one less. ``sigmoid_average`` and ``softmax_average`` first apply the function to each document's scores.
    ``round_robin`` takes the first label of each prediction, then the second of each, and so on.
    """
    if way not in ENSEMBLES:
        raise InputError(f"unknown ensemble {way!r}", expected=", ".join(ENSEMBLES), received=way)
    if len(predictions) < 2:
        raise InputError("an ensemble needs several predictions", expected="at least 2", received=str(len(predictions)))
    for number, prediction in enumerate(predictions[1:], 2):
        check_shapes(predictions[0], prediction, f"prediction {number} of the ensemble")
    return _sorted(ENSEMBLES[way]([_sorted(smat.csr_matrix(p)) for p in predictions]))


def _average(predictions: list[smat.csr_matrix]) -> smat.csr_matrix:
    row = np.concatenate([np.repeat(np.arange(p.shape[0]), np.diff(p.indptr)) for p in predictions])
    column = np.concatenate([p.indices for p in predictions])
    data = np.concatenate([p.data for p in predictions])
    # Not with scipy's +, which drops scores of 0: a label predicted with score 0 is a prediction. The conversion from
    # coo to csr sums duplicates and keeps zeros.
    total = smat.coo_matrix((data, (row, column)), shape=predictions[0].shape).tocsr()
    total.sum_duplicates()
    total.data /= len(predictions)
    return total


def _round_robin(predictions: list[smat.csr_matrix]) -> smat.csr_matrix:
    # On equal ranks the earlier prediction wins by a bonus below one point, so the ranks never mix.
    count = len(predictions)
    best, *others = (
        _with_scores(p, p.data + (count - number) / (count + 1.0)) for number, p in enumerate(_points(predictions))
    )
    for other in others:
        best = best.maximum(other)
    return _with_scores(best, best.data / count)


ENSEMBLES: dict[str, Callable[[list[smat.csr_matrix]], smat.csr_matrix]] = {
    "average": _average,
    "root_average": lambda ps: _squared(_average([_with_scores(p, np.sqrt(np.maximum(p.data, 0))) for p in ps])),
    "rank_average": lambda ps: _average(_points(ps)),
    # With tanh, which cannot overflow.
    "sigmoid_average": lambda ps: _average([_with_scores(p, 0.5 * (1.0 + np.tanh(0.5 * p.data))) for p in ps]),
    "softmax_average": lambda ps: _average([_with_scores(p, _softmax(p)) for p in ps]),
    "round_robin": _round_robin,
}
"""The methods to combine predictions."""


def _squared(prediction: smat.csr_matrix) -> smat.csr_matrix:
    return _with_scores(prediction, np.square(prediction.data))


def _points(predictions: list[smat.csr_matrix]) -> list[smat.csr_matrix]:
    """Replace scores by points: a row's first label gets the length of the longest row, each further label one less."""
    longest = max(int(np.diff(p.indptr).max(initial=0)) for p in predictions)
    ranks = (np.arange(p.nnz) - np.repeat(p.indptr[:-1], np.diff(p.indptr)) for p in predictions)
    return [_with_scores(p, longest - rank) for p, rank in zip(predictions, ranks, strict=True)]


def _softmax(prediction: smat.csr_matrix) -> np.ndarray:
    lengths = np.diff(prediction.indptr)
    filled = np.flatnonzero(lengths)
    if len(filled) == 0:
        return prediction.data
    starts, lengths = prediction.indptr[filled], lengths[filled]
    # Rows are sorted, so the first entry is the largest.
    weights = np.exp(prediction.data - np.repeat(prediction.data[starts], lengths))
    return weights / np.repeat(np.add.reduceat(weights, starts), lengths)


def _sorted(prediction: smat.csr_matrix) -> smat.csr_matrix:
    """Return a float64 copy with duplicates summed and rows sorted by descending score, ties by label id."""
    rows = _with_scores(prediction, prediction.data)
    rows.sum_duplicates()
    row_of = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    order = np.lexsort((-rows.data, row_of))  # stable, so tied labels stay in ascending order
    return smat.csr_matrix((rows.data[order], rows.indices[order], rows.indptr), shape=rows.shape)


def _with_scores(matrix: smat.csr_matrix, data: np.ndarray) -> smat.csr_matrix:
    """Return a copy with the same entries but other scores."""
    return smat.csr_matrix((np.asarray(data, np.float64), matrix.indices, matrix.indptr), shape=matrix.shape, copy=True)
