"""The search layout of weights: one chunk per parent, one row per feature, siblings side by side.

A query has some twenty of a chunk's thousands of features. Each chunk therefore has a small hash table from features to
rows, and a row contains the weights of all siblings that have this feature. One look-up serves all siblings, as in
masked sparse chunk multiplication (Etter et al., WWW 2022). Node ``v`` of level ``t`` is the parent of chunk
``level_start[t + 1] + v``.

All chunks are in one array of 32-bit words, which can be a memory-mapped file. A chunk consists of

- the bias of each sibling,
- the weights of the dense features, one row per sibling,
- the blocks of the hash table: 32 bits, one per slot, set if the slot is taken; and the number of slots taken in the
  blocks before,
- the entries of the hash table: for each slot taken, the feature and the position of its row; a last entry contains the
  end of the last row,
- the rows: either a weight for every sibling, padded to a multiple of sixteen (a whole row), or only some weights,
  followed by the positions of their siblings in as few bytes as these positions need.

If most siblings have a weight, adding a whole row in registers is faster than adding single weights. A row is stored
whole if at least one in ``share`` siblings has a weight, or if the other form is not shorter; readers need not know the
share. (Sums of whole rows are rounded less often, so the last digit of a score may depend on the share.) The blocks of
a chunk take less than two bytes per feature, so they stay in the processor's cache. For most features that a chunk does
not have, reading the block is enough.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import intrinsic

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.common.lanes import WIDTH
from xmc_tf.common.ordering import sort_ascending

_HALF = np.uint64(32)


@intrinsic
def popcount(typing, value):
    """Return the number of set bits of an integer."""

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return value(value), codegen


VERSION = 2  # of the layout; increase it with each change
SHARE = 3  # fast, and small enough
SMALL_SHARE = 1  # for large models: the smallest form
LINE_WORDS = 16  # chunks begin at multiples of this number of words: the lines of a processor's cache
_SLOTS = 6  # slots per feature of a chunk
_HASH = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth's multiplicative hashing)
_COUNT, _FILLED, _ROW = range(3)  # columns of the state of a feature while a chunk is filled


class Chunks(NamedTuple):
    """The chunks of all levels."""

    level_start: np.ndarray  # first chunk of each level
    child_start: np.ndarray  # position of each chunk's first child in ``children``
    children: np.ndarray  # node of the level (at the last level: label) of each child; -1: searches skip it
    start: np.ndarray  # position of each chunk in ``words``
    rows: np.ndarray  # number of rows of each chunk
    words: np.ndarray  # the chunks, int32
    weights: np.ndarray  # the same memory, float32
    bytes: np.ndarray  # the same memory, uint8
    widest: int  # maximum number of children of a chunk, padded to whole registers


@inner
def padded(width):
    """Return the number of siblings, rounded up to whole registers."""
    return (width + WIDTH - 1) // WIDTH * WIDTH


@inner
def child_bytes(width):
    """Return the number of bytes that a position among ``width`` siblings takes."""
    return 1 if width <= 1 << 8 else (2 if width <= 1 << 16 else 4)


@inner
def row_words(count, width, share):
    """Return the size in 4-byte words of a row with ``count`` weights; a row that is nearly full is stored whole."""
    some = count + (count * child_bytes(width) + 3) // 4
    return padded(width) if share * count >= padded(width) else min(some, padded(width))


@inner
def row_count(words, size):
    """Return the number of weights of a partially filled row of ``words`` words, with ``size`` bytes per position."""
    return 4 * words // (4 + size)


@inner
def blocks_of(rows):
    """Return the number of blocks of the hash table for ``rows`` rows. At least one slot stays free."""
    return _SLOTS * rows // 32 + 1


@inner
def table_at(width, nr_dense):
    """Return the position of the hash table within a chunk."""
    return width * (1 + nr_dense)


@inner
def first_slot(feature, slots):
    """Return the slot where the search for a feature begins."""
    return np.int64((((np.uint64(feature) * _HASH) >> _HALF) * np.uint64(slots)) >> _HALF)


@inner
def entry_of(words, table, slots, entries, feature):
    """Return the position of a feature's entry, or -1 if there is none. ``table`` and ``entries`` are the positions of
    the chunk's blocks and entries.
    """
    slot = first_slot(feature, slots)
    while True:
        block = table + 2 * (slot >> 5)
        bit = np.int64(1) << (slot & 31)
        taken = np.int64(words[block])
        if taken & bit == 0:
            return np.int64(-1)
        entry = entries + 2 * (words[block + 1] + popcount(taken & (bit - 1)))
        if words[entry] == feature:
            return entry
        slot = slot + 1 if slot + 1 < slots else 0


@inner
def _count_features(indptr, indices, children, nr_sparse, state, seen):
    """Count the weights of each sparse feature in ``state``; write the features to ``seen`` and return their number."""
    found = 0
    for child in children:
        for p in range(indptr[child], indptr[child + 1]):
            feature = indices[p]
            if feature < nr_sparse:
                # Without a branch, which would often be mispredicted: a feature that is not new is overwritten.
                seen[found] = feature
                found += state[feature, _COUNT] == 0
                state[feature, _COUNT] += 1
    return found


@kernel
def measure(indptr, indices, child_indptr, children, nr_sparse, nr_dense, share, first, last, rows, lengths):
    """Write the number of rows and the length in words of each chunk in ``[first, last)``."""
    state, seen = np.zeros((nr_sparse, 1), np.int32), np.empty(nr_sparse + 1, np.int32)
    for chunk in range(first, last):
        siblings = children[child_indptr[chunk] : child_indptr[chunk + 1]]
        width = len(siblings)
        found = _count_features(indptr, indices, siblings, nr_sparse, state, seen)
        words = table_at(width, nr_dense) + 2 * blocks_of(found) + 2 * (found + 1)
        for feature in seen[:found]:
            words += row_words(state[feature, _COUNT], width, share)
            state[feature, _COUNT] = 0
        rows[chunk], lengths[chunk] = found, (words + LINE_WORDS - 1) // LINE_WORDS * LINE_WORDS


@inner
def _fill_table(seen, state, width, share, words, table, slots, entries):
    """Write the hash table of a chunk (blocks and entries), and the position of each feature's row to ``state``."""
    for feature in seen:
        slot = first_slot(feature, slots)
        while np.int64(words[table + 2 * (slot >> 5)]) & (np.int64(1) << (slot & 31)):
            slot = slot + 1 if slot + 1 < slots else 0
        words[table + 2 * (slot >> 5)] |= np.int32(np.uint32(1) << np.uint32(slot & 31))
        state[feature, _ROW] = slot
    before = 0
    for block in range(table, entries, 2):
        words[block + 1] = before
        before += popcount(np.int64(words[block]) & 0xFFFFFFFF)
    for feature in seen:
        slot = np.int64(state[feature, _ROW])
        block = table + 2 * (slot >> 5)
        below = np.int64(words[block]) & ((np.int64(1) << (slot & 31)) - 1)
        words[entries + 2 * (words[block + 1] + popcount(below))] = feature
    at, stream = 0, entries + 2 * (len(seen) + 1)
    for entry in range(entries, stream - 2, 2):
        feature = words[entry]
        words[entry + 1], state[feature, _ROW] = at, at
        at += row_words(state[feature, _COUNT], width, share)
    words[stream - 2], words[stream - 1] = -1, at


@kernel
def fill(
    indptr, indices, data, child_indptr, children, nr_sparse, nr_dense, share, first, last, bias,
    start, words, weights, all_bytes,
):  # fmt: skip
    """Write the chunks ``[first, last)``, whose words must be zero before the call."""
    # The state of a feature is in one place, because there are more features than fit in the cache.
    state, seen = np.zeros((nr_sparse, 4), np.int32), np.empty(nr_sparse + 1, np.int32)
    for chunk in range(first, last):
        begin = start[chunk]
        siblings = children[child_indptr[chunk] : child_indptr[chunk + 1]]
        width = len(siblings)
        size, whole = child_bytes(width), padded(width)
        found = _count_features(indptr, indices, siblings, nr_sparse, state, seen)
        table = begin + table_at(width, nr_dense)
        entries = table + 2 * blocks_of(found)
        stream = entries + 2 * (found + 1)
        _fill_table(seen[:found], state, width, share, words, table, 32 * blocks_of(found), entries)
        for c in range(width):
            for p in range(indptr[siblings[c]], indptr[siblings[c] + 1]):
                feature = indices[p]
                if feature >= nr_sparse + nr_dense:
                    weights[begin + c] = data[p] * bias
                elif feature >= nr_sparse:
                    weights[begin + width + c * nr_dense + feature - nr_sparse] = data[p]
                else:
                    own = state[feature]
                    row, count = stream + own[_ROW], np.int64(own[_COUNT])
                    filled = np.int64(own[_FILLED])
                    own[_FILLED] = filled + 1
                    is_whole = row_words(count, width, share) == whole
                    place = row + (c if is_whole else filled)
                    if size == 1:
                        # Without a branch: the weight overwrites a position that its row does not have.
                        all_bytes[4 * place if is_whole else 4 * (row + count) + filled] = c
                    elif not is_whole:
                        for b in range(size):
                            all_bytes[4 * (row + count) + size * filled + b] = (c >> (8 * b)) & 255
                    weights[place] = data[p]
        for feature in seen[:found]:
            state[feature, _COUNT], state[feature, _FILLED] = 0, 0


@inner
def _sibling(all_bytes, at, size, i):
    """Return the sibling of weight ``i`` of a row; the positions of its siblings begin at byte ``at``."""
    sibling = np.int64(0)
    for b in range(size):
        sibling |= np.int64(all_bytes[at + size * i + b]) << (8 * b)
    return sibling


@inner
def _add_row(words, weights, all_bytes, row, length, width, siblings, row_name, at, indices, data):
    """Append the weights of a row to its siblings' columns. If ``indices`` is empty, only count them in ``at``."""
    size = child_bytes(width)
    whole = length == padded(width)
    count = width if whole else row_count(length, size)
    for i in range(count):
        value = weights[row + i]
        if value != 0.0:
            column = siblings[i if whole else _sibling(all_bytes, 4 * (row + count), size, i)]
            if len(indices):
                indices[at[column]], data[at[column]] = row_name, value
            at[column] += 1


@kernel
def unpack(
    words, weights, all_bytes, start, rows, child_indptr, children, nr_sparse, nr_dense, bias, first, last, at, indices,
    data,
):  # fmt: skip
    """Read the weights of the chunks ``[first, last)``, sorted by feature. ``at``, the next position of each
    column, is advanced. If ``indices`` is empty, the weights are only counted.
    """
    widest = np.int64(1)
    for chunk in range(first, last):
        widest = max(widest, rows[chunk])
    keys, spare = np.empty(widest, np.int64), np.empty(widest, np.int64)
    for chunk in range(first, last):
        begin = start[chunk]
        siblings = children[child_indptr[chunk] : child_indptr[chunk + 1]]
        width, count = len(siblings), rows[chunk]
        entries = begin + table_at(width, nr_dense) + 2 * blocks_of(count)
        stream = entries + 2 * (count + 1)
        for e in range(count):  # entries are in the order of a hash table
            keys[e] = np.int64(words[entries + 2 * e]) << 32 | e
        sort_ascending(keys[:count], spare)
        for k in range(count):
            entry = entries + 2 * (keys[k] & 0xFFFFFFFF)
            row, length = stream + words[entry + 1], words[entry + 3] - words[entry + 1]
            _add_row(words, weights, all_bytes, row, length, width, siblings, keys[k] >> 32, at, indices, data)
        for c in range(width):
            for j in range(nr_dense + 1):
                place = begin + width + c * nr_dense + j if j < nr_dense else begin + c
                value = weights[place] if j < nr_dense or bias == 0.0 else weights[place] / bias
                if value != 0.0:
                    if len(indices):
                        indices[at[siblings[c]]], data[at[siblings[c]]] = nr_sparse + j, value
                    at[siblings[c]] += 1
