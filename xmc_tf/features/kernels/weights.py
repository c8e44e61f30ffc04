"""Compiled functions that compute the TF-IDF weights of texts."""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.common.ordering import sort_ascending
from xmc_tf.features.kernels.pieces import pieces_of_word
from xmc_tf.features.kernels.words import SPREAD, split_text
from xmc_tf.words.kernels import find_key, lemma_key

NORMS = ("none", "l1", "l2")
_NO_NORM, _L2 = 0, 2
# The graph counts in float32, where this number plus 1 is itself.
_LARGEST_COUNT = 1 << 24

_HALF_ROOT = np.float32(0.707106781186547524)
_LN2 = np.float32(0.6931471805599453)
# Numerator and denominator of the rational function that approximates log(1 + x).
_P1, _P2, _P3 = np.float32(1.0000000190281136), np.float32(1.0000000190281063), np.float32(0.18256296349849254)
_Q1, _Q2, _Q3 = np.float32(1.4999999999999927), np.float32(0.59923249590823520), np.float32(0.049616247954120038)
_ONE = np.float32(1)


@inner
def logarithm(count):
    """Return the natural logarithm of a number from 1 to 2^24, rounded as Eigen's vectorized float32 function does."""
    exponent = np.float32(0)
    x = np.float32(count)
    while x >= _ONE:  # to [0.5, 1), which is exact
        x *= np.float32(0.5)
        exponent += _ONE
    if x < _HALF_ROOT:
        exponent -= _ONE
        x = (x - _ONE) + x
    else:
        x -= _ONE
    p = x * ((x * (x * _P3 + _P2)) + _P1)
    q = (x * ((x * (x * _Q3 + _Q2)) + _Q1)) + _ONE
    return exponent * _LN2 + p / q


@kernel
def logarithms(counts):
    out = np.empty(counts.shape[0], np.float32)
    for i in range(counts.shape[0]):
        out[i] = logarithm(counts[i])
    return out


@inner
def _weigh(ids, idf, sublinear, norm, out_ids, out_weights, at):
    """Append the distinct features of a text (sorted ``ids``) and their float32 weights; return the new end."""
    first = at
    i = 0
    while i < ids.shape[0]:
        end = i + 1
        while end < ids.shape[0] and ids[end] == ids[i]:
            end += 1
        count = min(end - i, _LARGEST_COUNT)
        value = np.float32(count)
        if sublinear:
            value = _ONE if count == 1 else _ONE + logarithm(count)
        out_ids[at] = ids[i]
        out_weights[at] = value * idf[ids[i]]
        at += 1
        i = end
    if norm != _NO_NORM:
        total = np.float32(0)
        for place in range(first, at):
            weight = out_weights[place]
            total += weight * weight if norm == _L2 else weight
        if norm == _L2:
            total = np.float32(np.sqrt(total))
        for place in range(first, at):
            out_weights[place] /= total
    return at


@kernel
def weigh_texts(data, offsets, table, min_length, ngram_max, piece, features, columns, idf, sublinear, norm, lexicon):
    """Return the features of texts in CSR form: text boundaries, features (ascending within a text), and weights."""
    rows = offsets.shape[0] - 1
    longest = 0
    for row in range(rows):
        longest = max(longest, offsets[row + 1] - offsets[row])
    letters = np.empty(longest + longest // 2 + 2, np.uint8)
    ends = np.empty(longest + 2, np.int64)
    words_keys = np.empty(longest + 2, np.int64)
    marked, starts = np.empty(len(letters) + 2, np.uint8), np.empty(len(letters) + 3, np.int64)
    piece_keys = np.empty(len(letters) + 2, np.int64)
    found_ids = np.empty((longest + 2) * ngram_max + (len(letters) + 2 * len(ends) if piece > 0 else 0), np.int32)
    spare = np.empty(len(found_ids), np.int32)
    capacity = 64 + (offsets[rows] - offsets[0]) // 4
    out_ids, out_weights = np.empty(capacity, np.int32), np.empty(capacity, np.float32)
    splits = np.zeros(rows + 1, np.int64)
    at = 0
    for row in range(rows):
        words, _ = split_text(data, offsets[row], offsets[row + 1], table, min_length, letters, ends, 0, 0)
        begin = np.int64(0)
        found = 0
        for i in range(words):
            words_keys[i], _ = lemma_key(letters, begin, ends[i], lexicon)
            for j in range(pieces_of_word(letters, begin, ends[i], piece, marked, starts, piece_keys, 0)):
                place = find_key(piece_keys[j], features)
                if place >= 0:
                    found_ids[found] = columns[place]
                    found += 1
            begin = ends[i]
        for i in range(words):
            key = np.int64(0)
            for n in range(min(ngram_max, words - i)):
                key = key * SPREAD + words_keys[i + n]
                place = find_key(key, features)
                if place >= 0:
                    found_ids[found] = columns[place]
                    found += 1
        if at + found > out_ids.shape[0]:
            larger = max(at + found, 2 * out_ids.shape[0])
            more_ids, more_weights = np.empty(larger, np.int32), np.empty(larger, np.float32)
            for i in range(at):  # Numba takes a second to compile the assignment of a slice
                more_ids[i], more_weights[i] = out_ids[i], out_weights[i]
            out_ids, out_weights = more_ids, more_weights
        ids = found_ids[:found]
        sort_ascending(ids, spare)
        at = _weigh(ids, idf, sublinear, norm, out_ids, out_weights, at)
        splits[row + 1] = at
    return splits, out_ids[:at].copy(), out_weights[:at].copy()
