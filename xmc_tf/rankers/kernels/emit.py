"""Sparse weight columns (thresholded, limited in number, sorted by feature), and matrices made of them."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.common.ordering import kth_largest, sort_ascending


class WeightColumns(NamedTuple):
    """Sparse weight columns of several labels. Only the first ``indptr[filled[0]]`` entries are in use."""

    labels: np.ndarray  # label of each column
    indptr: np.ndarray  # position of each column's first weight; ``indptr[filled[0]]`` is the end
    features: np.ndarray  # row of each weight in the level's W (the bias is the last row)
    weights: np.ndarray
    filled: np.ndarray  # ``filled[0]`` is the number of columns


@inner
def new_columns(capacity):
    """Return empty columns with space for ``capacity`` labels."""
    return WeightColumns(
        np.empty(capacity, np.int64), np.zeros(capacity + 1, np.int64), np.empty(256 * capacity, np.int32),
        np.empty(256 * capacity, np.float32), np.zeros(1, np.int64),
    )  # fmt: skip


@inner
def _with_room(columns, more):
    """Return the same columns with space for ``more`` additional weights."""
    used = columns.indptr[columns.filled[0]]
    if used + more <= len(columns.weights):
        return columns
    size = max(used + more, 2 * len(columns.weights))
    features, weights = np.empty(size, np.int32), np.empty(size, np.float32)
    for i in range(used):  # Numba takes a second to compile the assignment of a slice
        features[i], weights[i] = columns.features[i], columns.weights[i]
    return WeightColumns(columns.labels, columns.indptr, features, weights, columns.filled)


@inner
def _keep_heaviest(names, values, count, most):
    """Move the ``most`` largest of ``count`` weights by magnitude to the front. Ties go to the first weights."""
    sizes = np.empty(count, np.float32)
    for i in range(count):
        sizes[i] = abs(values[i])
    least = kth_largest(sizes, most)
    equal = most
    for i in range(count):
        equal -= abs(values[i]) > least
    kept = 0
    for i in range(count):
        size = abs(values[i])
        if size > least or (size == least and equal > 0):
            equal -= size == least
            names[kept], values[kept] = names[i], values[i]
            kept += 1


@inner
def _sort_by_name(names, values, count):
    """Sort the first ``count`` names and their values by name."""
    keys, spare, before = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.float32)
    for i in range(count):
        keys[i] = np.int64(names[i]) << 32 | i
        before[i] = values[i]
    sort_ascending(keys, spare)
    for i in range(count):
        names[i], values[i] = keys[i] >> 32, before[keys[i] & 0xFFFFFFFF]


@inner
def emit_column(columns, label, lane, problem, nr_sparse, nr_dense, w, alpha, signs, has_bias, threshold, max_nonzeros):
    """Append one lane's weights as a column and clear them in ``w``, where the bias precedes dense features."""
    shared = len(problem.names)
    most = shared + nr_dense + 1 + len(problem.private_names)
    columns = _with_room(columns, most)
    begin = columns.indptr[columns.filled[0]]
    names, values = columns.features[begin:], columns.weights[begin:]
    found = 0
    for local in range(shared):
        value = w[local, lane]
        w[local, lane] = 0.0
        if abs(value) >= threshold and value != 0.0:
            names[found], values[found] = problem.names[local], value
            found += 1
    # The weight of a private feature follows from its document's alpha (see gather.py).
    for i in range(len(problem.rows)):
        pull = alpha[i, lane] * signs[i, lane]
        if pull != 0.0:
            for p in range(problem.private_indptr[i], problem.private_indptr[i + 1]):
                value = pull * problem.private_values[p]
                if abs(value) >= threshold and value != 0.0:
                    names[found], values[found] = problem.private_names[p], value
                    found += 1
    for j in range(nr_dense + 1):
        row = shared + 1 + j if j < nr_dense else shared
        value = w[row, lane]
        w[row, lane] = 0.0
        if abs(value) >= threshold and value != 0.0 and (j < nr_dense or has_bias):
            names[found], values[found] = nr_sparse + j, value
            found += 1
    if 0 < max_nonzeros < found:
        _keep_heaviest(names, values, found, max_nonzeros)
        found = max_nonzeros
    _sort_by_name(names, values, found)
    columns.labels[columns.filled[0]] = label
    columns.filled[0] += 1
    columns.indptr[columns.filled[0]] = begin + found
    return columns


@kernel
def _copy_columns(labels, indptr, features, weights, out_indptr, out_features, out_weights):
    """Copy columns to the positions of their labels in a CSC matrix. Columns with the label -1 are skipped."""
    for j in range(len(labels)):
        if labels[j] >= 0:
            at, begin, end = out_indptr[labels[j]], indptr[j], indptr[j + 1]
            for p in range(end - begin):
                out_features[at + p] = features[begin + p]
                out_weights[at + p] = weights[begin + p]


def join_columns(parts: list[WeightColumns], nr_labels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the columns as CSC arrays, ordered by label, without columns of label -1. The list is emptied, so that
    each part is freed once it is copied.
    """
    sizes = np.zeros(nr_labels + 1, np.int64)
    for part in parts:
        labels = part.labels[: int(part.filled[0])]
        sizes[labels[labels >= 0] + 1] = np.diff(part.indptr[: len(labels) + 1])[labels >= 0]
    indptr = np.cumsum(sizes)
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    while parts:
        part = parts.pop()
        labels = part.labels[: int(part.filled[0])]
        _copy_columns(labels, part.indptr, part.features, part.weights, indptr, indices, data)
    return indptr, indices, data


def matrix_of_columns(parts: list[WeightColumns], shape: tuple[int, int]) -> csc_matrix:
    """Return the weight matrix W of a level. The list of its columns is emptied, as in :func:`join_columns`."""
    indptr, indices, data = join_columns(parts, shape[1])
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    weights = csc_matrix((data, indices, indptr), shape=shape)
    weights.has_sorted_indices = True
    return weights
