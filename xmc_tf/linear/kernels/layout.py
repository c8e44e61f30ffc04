"""Weights as the beam search reads them: one chunk a parent, one row per feature, siblings side by side.

A query meets a chunk with some twenty features of its own; the chunk knows thousands. So each chunk has a small hash
table from feature to row, and a row holds the weights of those siblings that have one. All chunks of all levels lie in
the same few arrays: node ``v`` of level ``t`` is the parent of chunk ``level_start[t + 1] + v``.

The idea of sharing one look-up among siblings is masked sparse chunk multiplication (Etter et al., WWW 2022).
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
        child_start: where each chunk's children begin in ``children``; a level's own offset included.
        children: node of the level (at the last level: label) of each child.
        bias: the constant feature's share of each child's score.
        dense: weights of the dense features, a row a child.
        table_start: where each chunk's hash table begins in ``table``, in slots.
        table_shift: 64 less the binary logarithm of the table's size.
        table: slots of two: feature (or -1), and where its row begins in ``stream`` from ``stream_start`` on.
        stream_start: where each chunk's rows begin.
        stream: rows, each either a count and so many pairs of (position among the siblings, weight as float32 bits), or
            -1 and a weight for every sibling, up to a multiple of sixteen. Features that queries have are mostly such
            that most siblings know: then adding a whole row in registers beats picking its entries.
        weights: the same memory as ``stream``, read as float32.
        widest: most children of one chunk, in whole registers.
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
    """Room for so many siblings in whole registers."""
    return (width + WIDTH - 1) // WIDTH * WIDTH


@njit(cache=True, nogil=True)
def _is_whole(count, width):
    """Whether a row with so many weights holds one for every sibling: not over 1.5 times the memory of the pairs."""
    return 3 * count >= padded(width)


@njit(cache=True, nogil=True)
def _count_features(indptr, indices, children, nr_sparse, counter, seen):
    """Counts the weights on each sparse feature into ``counter``; returns how many features are in ``seen``."""
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
    """For chunks first to last: how many rows they have, and how many words of the stream these take."""
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
    """Fills chunks first to last."""
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
