"""Beam search: at each level, only the children of the best nodes of the level above are scored."""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.common.lanes import WIDTH, fma, load_at, prefetch_at, splat, store_at
from xmc_tf.common.ordering import offer, sort_best_first
from xmc_tf.rankers.kernels.layout import (
    blocks_of,
    child_bytes,
    entry_of,
    first_slot,
    padded,
    popcount,
    row_count,
    table_at,
)
from xmc_tf.rankers.kernels.postprocess import NOOP, additive, chain, least_raw, neutral, squash

TOGETHER = 32  # features that are looked up at the same time


@inner(fastmath=True)
def _dot(a, b):
    """Return the dot product of two arrays. The order of the sum is not fixed, so that it can be vectorized."""
    total = np.float32(0.0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@inner
def _add_some(weights, positions, begin, length, size, value, scores):
    """Add ``value`` times a partially filled row to the scores of the row's siblings."""
    count = row_count(length, size)
    at = 4 * (begin + count)
    if size == 1:
        for e in range(count):
            scores[positions[at + e]] += value * weights[begin + e]
        return
    for e in range(count):
        child = np.int64(positions[at + size * e]) | np.int64(positions[at + size * e + 1]) << 8
        if size == 4:
            child |= np.int64(positions[at + 4 * e + 2]) << 16 | np.int64(positions[at + 4 * e + 3]) << 24
        scores[child] += value * weights[begin + e]


@inner
def _score_chunk(chunks, chunk, indices, data, start, stop, x_dense, scores, places, found):
    """Write the raw scores of all children of one chunk for one query. Blocks, entries and rows are prefetched for
    several features at a time, so that a query waits once for each of the three and not once for each feature.
    """
    begin = chunks.start[chunk]
    width = chunks.child_start[chunk + 1] - chunks.child_start[chunk]
    words, weights = chunks.words, chunks.weights
    nr_dense, blocks, size = len(x_dense), blocks_of(chunks.rows[chunk]), child_bytes(width)
    table, slots = begin + table_at(width, nr_dense), 32 * blocks
    entries = table + 2 * blocks
    stream = entries + 2 * (chunks.rows[chunk] + 1)
    whole = padded(width)
    for c in range(width):
        scores[c] = weights[begin + c]
    for first in range(start, stop, TOGETHER):
        last = min(first + TOGETHER, stop)
        for p in range(first, last):
            prefetch_at(words, table + 2 * (first_slot(indices[p], slots) >> 5))
        count = 0
        for p in range(first, last):
            slot = first_slot(indices[p], slots)
            block = table + 2 * (slot >> 5)
            taken = np.int64(words[block])
            entry = entries + 2 * (words[block + 1] + popcount(taken & ((np.int64(1) << (slot & 31)) - 1)))
            prefetch_at(words, entry)
            places[count], found[count] = p, entry
            count += (taken >> (slot & 31)) & 1
        kept = 0
        for i in range(count):
            feature, entry = indices[places[i]], found[i]
            if words[entry] != feature:
                entry = entry_of(words, table, slots, entries, feature)
                if entry < 0:
                    continue
            prefetch_at(words, stream + words[entry + 1])
            places[kept], found[kept] = places[i], entry
            kept += 1
        for i in range(kept):
            row, value = words[found[i] + 1], data[places[i]]
            length = words[found[i] + 3] - row
            if length == whole:
                times = splat(value)
                for c in range(0, width, WIDTH):
                    store_at(scores, c, fma(times, load_at(weights, stream + row + c), load_at(scores, c)))
            else:
                _add_some(weights, chunks.bytes, stream + row, length, size, value, scores)
    if nr_dense > 0:
        for c in range(width):
            at = begin + width + c * nr_dense
            scores[c] += _dot(x_dense, weights[at : at + nr_dense])


@inner
def _start_beams(codes_indptr, codes_indices, codes_data, nr_parents, root_score, first, nodes, scores, sizes):
    """Fill the beams of a block of queries with the parents to start from (by default, all)."""
    for q in range(len(sizes)):
        if len(codes_indptr) > 0:
            begin, end = codes_indptr[first + q], codes_indptr[first + q + 1]
            for p in range(begin, end):  # Numba takes a second to compile the assignment of a slice
                nodes[q, p - begin], scores[q, p - begin] = codes_indices[p], codes_data[p]
            sizes[q] = end - begin
        else:
            for parent in range(nr_parents):
                nodes[q, parent], scores[q, parent] = parent, root_score
            sizes[q] = nr_parents


@inner
def _by_chunk(nodes, sizes, nr_parents):
    """Return all (query, position in its beam) pairs of a block, sorted by node (a counting sort)."""
    total = 0
    for q in range(len(sizes)):
        total += sizes[q]
    queries, places = np.empty(total, np.int32), np.empty(total, np.int32)
    begin = np.zeros(nr_parents + 1 if len(sizes) > 1 else 1, np.int64)
    if len(sizes) > 1:
        for q in range(len(sizes)):
            for b in range(sizes[q]):
                begin[nodes[q, b] + 1] += 1
        for parent in range(nr_parents):
            begin[parent + 1] += begin[parent]
    for q in range(len(sizes)):
        for b in range(sizes[q]):
            parent = nodes[q, b] if len(sizes) > 1 else 0
            queries[begin[parent]], places[begin[parent]] = q, b
            begin[parent] += 1
    return queries, places


@kernel
def search(
    chunks, indptr, indices, data, dense, codes_indptr, codes_indices, codes_data, beams, posts, first, last, block,
    out_nodes, out_scores, out_counts,
):  # fmt: skip
    """Find the best labels of the queries ``[first, last)``. Blocks of queries are sorted by chunk, so that all queries
    use a chunk while it is in the cache. ``codes`` are the parents to start from (CSR); an empty ``codes_indptr`` means
    all.
    """
    nr_parents = chunks.level_start[1]
    widest = nr_parents
    for t in range(len(beams)):
        widest = max(widest, beams[t])
    raw = np.empty(chunks.widest, np.float32)
    asked, entries = np.empty(TOGETHER, np.int64), np.empty(TOGETHER, np.int64)
    for start in range(first, last, block):
        count = min(block, last - start)
        nodes, scores = np.empty((count, widest), np.int32), np.empty((count, widest), np.float32)
        best, best_scores = np.empty((count, widest), np.int32), np.empty((count, widest), np.float32)
        sizes, found = np.empty(count, np.int64), np.empty(count, np.int64)
        _start_beams(
            codes_indptr, codes_indices, codes_data, nr_parents, neutral(posts[0]), start, nodes, scores, sizes
        )
        for t in range(len(beams)):
            post, most = posts[t], beams[t]
            queries, places = _by_chunk(nodes, sizes, chunks.level_start[t + 1] - chunks.level_start[t])
            for q in range(count):
                found[q] = 0
            for pair in range(len(queries)):
                q, b = queries[pair], places[pair]
                parent = scores[q, b]
                # A combined score is never higher than the parent's, so no child can be better than its parent. (With
                # a negative score of another post-processor at the level above, it would be higher.)
                bounded = t > 0 and post != NOOP and (parent >= 0 or additive(post))
                if bounded and found[q] == most and parent < best_scores[q, 0]:
                    continue
                chunk = chunks.level_start[t] + nodes[q, b]
                row = start + q
                _score_chunk(
                    chunks, chunk, indices, data, indptr[row], indptr[row + 1], dense[row], raw, asked, entries
                )
                begin = chunks.child_start[chunk]
                least = -np.inf
                if found[q] == most:
                    least = least_raw(post, best_scores[q, 0], parent)
                for c in range(chunks.child_start[chunk + 1] - begin):
                    if raw[c] < least or chunks.children[begin + c] < 0:
                        continue
                    score = np.float32(chain(post, squash(post, raw[c]), parent))
                    found[q] = offer(best[q], best_scores[q], found[q], most, chunks.children[begin + c], score)
            for q in range(count):
                sort_best_first(best[q], best_scores[q], found[q])
            nodes, best = best, nodes
            scores, best_scores = best_scores, scores
            sizes, found = found, sizes
        for q in range(count):
            out_counts[start + q] = sizes[q]
            for b in range(sizes[q]):
                out_nodes[start + q, b], out_scores[start + q, b] = nodes[q, b], scores[q, b]


@kernel
def score_paths(chunks, indptr, indices, data, dense, path_indptr, path_chunk, path_child, path_parent, posts, out):
    """Score selected nodes of each query by level; :class:`~xmc_tf.rankers.xlinear.Paths` describes the arrays."""
    raw = np.empty(chunks.widest, np.float32)
    asked, entries = np.empty(TOGETHER, np.int64), np.empty(TOGETHER, np.int64)
    for t in range(len(posts)):
        for q in range(path_indptr.shape[1] - 1):
            scored = -1
            for p in range(path_indptr[t, q], path_indptr[t, q + 1]):
                if path_chunk[p] != scored:
                    scored = path_chunk[p]
                    _score_chunk(chunks, scored, indices, data, indptr[q], indptr[q + 1], dense[q], raw, asked, entries)
                own = squash(posts[t], raw[path_child[p]])
                parent = out[path_parent[p]] if path_parent[p] >= 0 else neutral(posts[t])
                out[p] = chain(posts[t], own, parent)
