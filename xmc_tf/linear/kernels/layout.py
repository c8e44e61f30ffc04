"""The layout of weights for beam search: one chunk per parent, one row per feature, siblings side by side.

A query has some twenty of the thousands of features that a chunk has. So each chunk has a small hash table from feature
to row, and a row contains the weights of the siblings that have one. All chunks of all levels are in the same few
arrays: node ``v`` of level ``t`` is the parent of chunk ``level_start[t + 1] + v``.

One look-up for all siblings is the idea of masked sparse chunk multiplication (Etter et al., WWW 2022).
"""

from typing import NamedTuple

import numpy as np

from xmc_tf.common.compiled import njit
from xmc_tf.linear.kernels.lanes import WIDTH

FREE = np.int32(-1)  # a slot without a feature
WHOLE = np.int32(-1)  # in place of a count: the row has a weight for every sibling
HASH = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth's multiplicative hashing)


class Chunks(NamedTuple):
    """All levels' chunks in flat arrays.

    Attributes:
        level_start: first chunk of each level.
        child_start: position of each chunk's first child in ``children``, including the level's offset.
        children: node of the level (at the last level: label) of each child.
        bias: the constant feature's share of each child's score.
        dense: weights of the dense features, a row per child.
        table_start: position of each chunk's hash table in ``table``, in slots.
        table_shift: 64 minus the binary logarithm of the table's size.
        table: slots of two numbers: feature (or -1), and the position of its row in ``stream``, from ``stream_start``.
        stream_start: position of each chunk's rows.
        stream: rows, each either a count and that many pairs of (position among the siblings, weight as float32 bits),
            or -1 and a weight for every sibling, padded to a multiple of sixteen. Most siblings have weights for most
            features of queries; then it is faster to add a whole row in registers than single entries.
        weights: the same memory as ``stream``, read as float32.
        widest: maximum number of children of a chunk, padded to whole registers.
    """

    level_start: np.ndarray
    child_start: np.ndarray
    children: np.ndarray
    bias: np.ndarray
    dense: np.ndarray
    table_start: np.ndarray
    table_shift: np.ndarray
    table: np.ndarray
    stream_start: np.ndarray
    stream: np.ndarray
    weights: np.ndarray
    widest: int


@njit(cache=True, nogil=True)
def padded(width):
    """Return the number of siblings, rounded up to whole registers."""
    return (width + WIDTH - 1) // WIDTH * WIDTH


@njit(cache=True, nogil=True)
def _is_whole(count, width):
    """Return whether a row stores a weight for every sibling: if it needs at most 1.5 times the memory of pairs."""
    return 3 * count >= padded(width)


@njit(cache=True, nogil=True)
def _count_features(indptr, indices, children, nr_sparse, counter, seen):
    """Count the weights of each sparse feature into ``counter``; return the number of features in ``seen``."""
    found = 0
    for child in children:
        for p in range(indptr[child], indptr[child + 1]):
            feature = indices[p]
            if feature < nr_sparse:
                if counter[feature] == 0:
                    seen[found] = feature
                    found += 1
                counter[feature] += 1
    return found


@njit(cache=True, nogil=True)
def measure(indptr, indices, child_indptr, children, nr_sparse, first, last, rows, words):
    """Write the number of rows of chunks ``first`` to ``last``, and of the stream's words that they take."""
    counter, seen = np.zeros(nr_sparse, np.int32), np.empty(nr_sparse, np.int32)
    for chunk in range(first, last):
        siblings = children[child_indptr[chunk] : child_indptr[chunk + 1]]
        rows[chunk] = _count_features(indptr, indices, siblings, nr_sparse, counter, seen)
        for feature in seen[: rows[chunk]]:
            count = counter[feature]
            words[chunk] += 1 + (padded(len(siblings)) if _is_whole(count, len(siblings)) else 2 * count)
            counter[feature] = 0


@njit(cache=True, nogil=True)
def fill(
    indptr, indices, data, child_indptr, children, nr_sparse, nr_dense, first, last, bias_value,
    bias, dense, table_start, table_shift, table, stream_start, stream, weights,
):  # fmt: skip
    """Fill chunks ``first`` to ``last``."""
    row_of, seen = np.zeros(nr_sparse, np.int64), np.empty(nr_sparse, np.int32)
    for chunk in range(first, last):
        begin = child_indptr[chunk]
        siblings = children[begin : child_indptr[chunk + 1]]
        found = _count_features(indptr, indices, siblings, nr_sparse, row_of, seen)
        mask = (np.int64(1) << np.int64(64 - table_shift[chunk])) - 1
        at = 0
        for feature in seen[:found]:
            slot = np.int64((np.uint64(feature) * HASH) >> np.uint64(table_shift[chunk]))
            while table[table_start[chunk] + slot, 0] != FREE:
                slot = (slot + 1) & mask
            table[table_start[chunk] + slot, 0] = feature
            table[table_start[chunk] + slot, 1] = at
            count, row = row_of[feature], stream_start[chunk] + at
            row_of[feature] = row
            if _is_whole(count, len(siblings)):
                stream[row] = WHOLE
                weights[row + 1 : row + 1 + padded(len(siblings))] = 0.0
                at += 1 + padded(len(siblings))
            else:
                stream[row] = 0
                at += 1 + 2 * count
        for c in range(len(siblings)):
            for p in range(indptr[siblings[c]], indptr[siblings[c] + 1]):
                feature = indices[p]
                if feature >= nr_sparse + nr_dense:
                    bias[begin + c] = data[p] * bias_value
                elif feature >= nr_sparse:
                    dense[begin + c, feature - nr_sparse] = data[p]
                else:
                    row = row_of[feature]
                    count = stream[row]
                    if count == WHOLE:
                        weights[row + 1 + c] = data[p]
                    else:
                        stream[row + 1 + 2 * count] = c
                        weights[row + 2 + 2 * count] = data[p]
                        stream[row] = count + 1
        for feature in seen[:found]:
            row_of[feature] = 0
