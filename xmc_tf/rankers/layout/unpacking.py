"""The weights of a level as a sparse matrix, read from their layout for search."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.kernels import kernel_view
from xmc_tf.common.threads import thread_count
from xmc_tf.rankers.kernels.layout import Chunks
from xmc_tf.rankers.kernels.unpack import unpack
from xmc_tf.rankers.layout.chunks import chunk_ranges
from xmc_tf.rankers.layout.stored import StoredSearch, damaged
from xmc_tf.rankers.level import Level


def stored_weights(stored: StoredSearch, levels: Sequence[Level], t: int) -> csc_matrix:
    """Return the weights of level ``t``, which are on disk in their layout for search only."""
    chunks = stored.chunks(levels)
    first, last = (int(chunks.level_start[t + i]) for i in range(2))
    matrix = _columns_of_chunks(stored, chunks, levels[t], first, np.arange(first, last))
    assert matrix.nnz == stored.nr_weights[t]
    return matrix


def _columns_of_chunks(
    stored: StoredSearch, chunks: Chunks, level: Level, level_start: int, wanted: np.ndarray
) -> csc_matrix:
    """Return a level's weights of which only the columns of some chunks are filled."""
    clusters = level.clusters
    # As the kernel numbers chunks: those before the level have no children here.
    indptr = np.concatenate([np.zeros(level_start, np.int64), clusters.indptr.astype(np.int64)])
    children = kernel_view(clusters.indices, np.int32)
    threads = thread_count(-1)

    def read(at: np.ndarray, indices: np.ndarray, data: np.ndarray) -> None:
        runs = np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1) if len(wanted) else []
        with ThreadPoolExecutor(threads) as pool:
            futures = [
                pool.submit(
                    unpack, chunks.words, chunks.weights, chunks.bytes, chunks.lines, chunks.start, chunks.rows,
                    chunks.checksums, indptr, children, stored.nr_sparse, stored.nr_dense, level.bias,
                    int(run[0]) + a, int(run[0]) + b, at, indices, data,
                )
                for run in runs
                for a, b in chunk_ranges(len(run), 4 * threads)
            ]  # fmt: skip
            for future in futures:
                if future.result() >= 0:
                    raise damaged(stored.folder)

    counts = np.zeros(clusters.shape[0], np.int64)
    read(counts, np.zeros(0, np.int32), np.zeros(0, np.float32))
    out_indptr = np.concatenate([[0], np.cumsum(counts)])
    indices, data = np.empty(out_indptr[-1], np.int32), np.empty(out_indptr[-1], np.float32)
    read(out_indptr[:-1].copy(), indices, data)
    if out_indptr[-1] <= np.iinfo(np.int32).max:
        out_indptr = out_indptr.astype(np.int32)
    nr_rows = stored.nr_sparse + stored.nr_dense + (level.bias > 0)
    matrix = csc_matrix((nr_rows, clusters.shape[0]), dtype=np.float32)
    matrix.indptr, matrix.indices, matrix.data = out_indptr, indices, data
    matrix.has_canonical_format = True
    return matrix
