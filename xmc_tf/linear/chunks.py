"""Arranging a model's weights for search, in the layout of ``kernels/layout.py``."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from xmc_tf.common.kernels import kernel_view
from xmc_tf.linear.kernels.layout import FREE, Chunks, fill, measure, padded
from xmc_tf.linear.level import Level


def build_chunks(levels: Sequence[Level], nr_sparse: int, nr_dense: int, threads: int = 1) -> Chunks:
    """Return the weights of all levels, arranged for search.

    Args:
        levels: the top first.
        nr_sparse: number of sparse features, which come first.
        nr_dense: number of dense features, which come after them.
        threads: number of threads to use.
    """
    counts = [level.clusters.shape[1] for level in levels]
    level_start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    child_counts = np.concatenate([np.diff(level.clusters.indptr) for level in levels])
    child_start = np.concatenate([[0], np.cumsum(child_counts, dtype=np.int64)])
    children = np.concatenate([level.clusters.indices for level in levels]).astype(np.int32, copy=False)
    rows, words = (np.zeros(int(level_start[-1]), np.int64) for _ in range(2))
    with ThreadPoolExecutor(threads) as pool:
        job: tuple[Any, ...]
        jobs = []
        for t, level in enumerate(levels):
            own = slice(int(level_start[t]), int(level_start[t + 1]))
            for first, last in _ranges(counts[t], threads):
                job = (
                    measure, *_arrays(level)[:2], *_children(level), nr_sparse, first, last, rows[own], words[own],
                )  # fmt: skip
                jobs.append(pool.submit(*job))
        for future in jobs:
            future.result()
        # At most two thirds full: short probes, and little memory for the many small chunks.
        bits = np.ceil(np.log2(np.maximum(1.5 * rows, 2))).astype(np.int64)
        table_start = np.concatenate([[0], np.cumsum(1 << bits)])
        stream_start = np.concatenate([[0], np.cumsum(words)])
        table = np.full((int(table_start[-1]), 2), FREE, np.int32)
        stream = np.empty(int(stream_start[-1]), np.int32)
        bias = np.zeros(len(children), np.float32)
        dense = np.zeros((len(children), nr_dense), np.float32)
        jobs = []
        for t, level in enumerate(levels):
            own = slice(int(level_start[t]), int(level_start[t + 1]))
            base = slice(int(child_start[own.start]), int(child_start[own.stop]))
            for first, last in _ranges(counts[t], threads):
                job = (
                    fill, *_arrays(level), *_children(level), nr_sparse, nr_dense, first, last,
                    level.bias, bias[base], dense[base], table_start[own],
                    64 - bits[own], table, stream_start[own], stream, stream.view(np.float32),
                )  # fmt: skip
                jobs.append(pool.submit(*job))
        for future in jobs:
            future.result()
    return Chunks(
        level_start, child_start, children, bias, dense, table_start, 64 - bits, table, stream_start, stream,
        stream.view(np.float32), int(padded(int(child_counts.max(initial=1)))),
    )  # fmt: skip


def _arrays(level: Level) -> tuple[Any, ...]:
    w = level.weights
    return kernel_view(w.indptr, np.int64), kernel_view(w.indices, np.int32), kernel_view(w.data, np.float32)


def _children(level: Level) -> tuple[Any, ...]:
    return kernel_view(level.clusters.indptr, np.int64), kernel_view(level.clusters.indices, np.int32)


def _ranges(count: int, parts: int) -> list[tuple[int, int]]:
    bounds = np.linspace(0, count, min(parts, count) + 1).astype(int)
    return [(int(a), int(b)) for a, b in pairwise(bounds)]
