"""Arrange a model's weights for search, in the layout of ``kernels/layout.py``."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.common.kernels import kernel_view
from xmc_tf.common.threads import thread_count
from xmc_tf.rankers.kernels.layout import SHARE, Chunks, fill, measure, padded
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.query_arrays import sparse_arrays


class ChunkTable(NamedTuple):
    """Rows, words and checksum of each chunk."""

    rows: np.ndarray  # number of rows
    lengths: np.ndarray  # number of words
    checksums: np.ndarray  # of the words


def build_chunks(
    levels: Sequence[Level], nr_sparse: int, nr_dense: int, threads: int = 1,
    room: Callable[[int], np.ndarray] = lambda count: np.zeros(count, np.int32),
) -> tuple[ChunkTable, Chunks]:  # fmt: skip
    """Return all levels' weights, arranged for search; ``room`` returns an array of so many int32, all zero."""
    threads = thread_count(threads)
    starts = np.cumsum([0, *(level.clusters.shape[1] for level in levels)])
    rows, lengths = (np.zeros(int(starts[-1]), np.int64) for _ in range(2))
    table = ChunkTable(rows, lengths, np.zeros(len(rows), np.uint64))
    places = [slice(int(a), int(b)) for a, b in pairwise(starts)]
    works = []
    for level, own in zip(levels, places, strict=True):
        clusters = kernel_view(level.clusters.indptr, np.int64), kernel_view(level.clusters.indices, np.int32)
        arrays = sparse_arrays(level.weights)
        for part in chunk_ranges(own.stop - own.start, threads):
            works.append((level.bias, own, arrays, (*clusters, nr_sparse, nr_dense, SHARE, *part)))
    with ThreadPoolExecutor(threads) as pool:
        jobs: list[tuple[Any, ...]] = [
            (measure, *arrays[:2], *sizes, rows[own], lengths[own]) for _, own, arrays, sizes in works
        ]
        _all_done(pool, jobs)
        words = room(int(lengths.sum()))
        chunks = chunks_of(levels, table, words)
        chunks.verified[:] = 1
        jobs = [
            (
                fill, *arrays, *sizes, bias, chunks.start[own.start : own.stop + 1], words, chunks.weights,
                chunks.bytes, chunks.lines, table.checksums[own],
            )
            for bias, own, arrays, sizes in works
        ]  # fmt: skip
        _all_done(pool, jobs)
    return table, chunks


def chunks_of(levels: Sequence[Level], table: ChunkTable, words: np.ndarray) -> Chunks:
    """Return the chunks of levels, whose weights are not read; each chunk's checksum is checked on first use."""
    child_counts = np.concatenate([np.diff(level.clusters.indptr) for level in levels])
    return Chunks(
        level_start=np.cumsum([0, *(level.clusters.shape[1] for level in levels)]),
        child_start=np.concatenate([[0], np.cumsum(child_counts, dtype=np.int64)]),
        children=np.concatenate([level.clusters.indices for level in levels]).astype(np.int32, copy=False),
        start=np.concatenate([[0], np.cumsum(table.lengths)]), rows=table.rows, words=words,
        weights=words.view(np.float32), bytes=words.view(np.uint8), lines=words.view(np.uint64),
        checksums=table.checksums, verified=np.zeros(len(table.rows), np.uint8), damaged=np.zeros(1, np.uint8),
        widest=int(padded(int(child_counts.max(initial=1)))),
    )  # fmt: skip


def with_children(chunks: Chunks, levels: Sequence[Level], kept: Sequence[Level]) -> Chunks:
    """Return chunks of which a search finds only the nodes of ``kept``; the weights stay."""
    children = []
    for level, some in zip(levels, kept, strict=True):
        here = np.zeros(level.clusters.shape[0], bool)
        here[some.clusters.indices] = True
        own = level.clusters.indices
        children.append(np.where(here[own], own, -1).astype(np.int32))
    return chunks._replace(children=np.concatenate(children))


def chunk_ranges(count: int, parts: int) -> list[tuple[int, int]]:
    """Return the bounds of about equal parts of so many chunks."""
    bounds = np.linspace(0, count, min(parts, count) + 1).astype(int)
    return [(int(a), int(b)) for a, b in pairwise(bounds)]


def _all_done(pool: ThreadPoolExecutor, jobs: Sequence[tuple[Any, ...]]) -> None:
    for future in [pool.submit(*job) for job in jobs]:
        future.result()
