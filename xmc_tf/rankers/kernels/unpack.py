"""Reading weights from their layout for search, as sparse columns; the opposite of ``measure`` and ``fill``."""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.common.ordering import sort_ascending
from xmc_tf.rankers.kernels.bits import checksum
from xmc_tf.rankers.kernels.layout import blocks_of, child_bytes, padded, row_count, table_at

_HALF = 32


@inner
def _sibling(all_bytes, at, size, i):
    """Return the position among the siblings of weight ``i`` of a row whose positions begin at byte ``at``."""
    sibling = np.int64(0)
    for b in range(size):
        sibling |= np.int64(all_bytes[at + size * i + b]) << (8 * b)
    return sibling


@inner
def _add_row(words, weights, all_bytes, row, length, width, siblings, row_name, at, indices, data):
    """Append the weights of a row to its siblings' columns; without ``indices``, only count them in ``at``."""
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
    words, weights, all_bytes, lines, start, rows, checksums, child_indptr, children, nr_sparse, nr_dense, bias, first,
    last, at, indices, data,
):  # fmt: skip
    """Read the weights of chunks ``first`` to ``last``, sorted by feature; return the first damaged chunk, or -1.

    ``words``, ``weights``, ``all_bytes`` and ``lines`` are the same memory in four types. ``at`` is where the next
    weight of each column belongs, and is advanced; with empty ``indices``, the weights are only counted.
    """
    widest = np.int64(1)
    for chunk in range(first, last):
        widest = max(widest, rows[chunk])
    keys, spare = np.empty(widest, np.int64), np.empty(widest, np.int64)
    for chunk in range(first, last):
        begin = start[chunk]
        if checksum(lines, begin // 2, start[chunk + 1] // 2) != checksums[chunk]:
            return chunk
        siblings = children[child_indptr[chunk] : child_indptr[chunk + 1]]
        width, count = len(siblings), rows[chunk]
        entries = begin + table_at(width, nr_dense) + 2 * blocks_of(count)
        stream = entries + 2 * (count + 1)
        for e in range(count):  # entries are in the order of a hash table
            keys[e] = np.int64(words[entries + 2 * e]) << _HALF | e
        sort_ascending(keys[:count], spare)
        for k in range(count):
            entry = entries + 2 * (keys[k] & 0xFFFFFFFF)
            row, length = stream + words[entry + 1], words[entry + 3] - words[entry + 1]
            _add_row(words, weights, all_bytes, row, length, width, siblings, keys[k] >> _HALF, at, indices, data)
        for c in range(width):
            for j in range(nr_dense + 1):
                place = begin + width + c * nr_dense + j if j < nr_dense else begin + c
                value = weights[place] if j < nr_dense or bias == 0.0 else weights[place] / bias
                if value != 0.0:
                    if len(indices):
                        indices[at[siblings[c]]], data[at[siblings[c]]] = nr_sparse + j, value
                    at[siblings[c]] += 1
    return np.int64(-1)
