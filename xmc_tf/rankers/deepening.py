"""Lists of the best labels in which a longer list always begins with the shorter one: the first labels come from a
search of fixed size, and further ones from deeper searches, because results of several trees depend on the lists'
lengths.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_matrix

GROWTH = 32
"""A deeper search looks for this many times as many labels."""


def deepened(search: Callable[[int], csr_matrix], only_topk: int, first: int) -> csr_matrix:
    """Return the best labels, descending within a row; ``search(n)`` finds n of them, and the first n is ``first``."""
    found = search(first)
    while first < only_topk:
        first *= GROWTH
        found = extended(found, search(first))
    return beginning(found, only_topk)


def extended(found: csr_matrix, more: csr_matrix, shares: bool = False) -> csr_matrix:
    """Return predictions with further labels behind them; ``shares``: their scores are shares of the last one's."""
    nr_labels, sizes = np.int64(found.shape[1]), np.diff(found.indptr)
    rows = np.repeat(np.arange(more.shape[0]), np.diff(more.indptr))
    owners = np.repeat(np.arange(found.shape[0]), sizes)
    new = ~np.isin(rows * nr_labels + more.indices, owners * nr_labels + found.indices)
    lowest = np.ones(found.shape[0], np.float32) if shares else np.full(found.shape[0], np.inf, np.float32)
    lowest[sizes > 0] = found.data[found.indptr[1:][sizes > 0] - 1]
    scores, rows = more.data[new], rows[new]
    scores = scores * lowest[rows] if shares else np.minimum(scores, lowest[rows])
    of = np.concatenate([owners, rows])
    order = np.argsort(of, kind="stable")
    out = csr_matrix(found.shape, dtype=np.float32)
    out.data = np.concatenate([found.data, scores.astype(np.float32)])[order]
    out.indices = np.concatenate([found.indices, more.indices[new]])[order].astype(found.indices.dtype)
    out.indptr = np.searchsorted(of[order], np.arange(found.shape[0] + 1)).astype(found.indptr.dtype)
    return out


def beyond(found: csr_matrix, count: int) -> csr_matrix:
    """Return the labels after the first ``count`` of each document, with scores as shares of the last of these."""
    place = np.arange(found.nnz) - np.repeat(found.indptr[:-1], np.diff(found.indptr))
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    kept = place >= count
    last = np.minimum(found.indptr[:-1] + count - 1, max(found.nnz - 1, 0))[rows[kept]]
    out = csr_matrix(found.shape, dtype=np.float32)
    scores = found.data[last]
    out.data = np.divide(found.data[kept], scores, out=np.zeros(int(kept.sum()), np.float32), where=scores > 0)
    out.indices = found.indices[kept]
    out.indptr = np.searchsorted(rows[kept], np.arange(found.shape[0] + 1)).astype(found.indptr.dtype)
    return out


def beginning(found: csr_matrix, count: int) -> csr_matrix:
    """Return the first ``count`` labels of each document."""
    place = np.arange(found.nnz) - np.repeat(found.indptr[:-1], np.diff(found.indptr))
    kept = place < count
    indptr = np.concatenate([[0], np.cumsum(np.minimum(np.diff(found.indptr), count))]).astype(found.indptr.dtype)
    out = csr_matrix(found.shape, dtype=np.float32)
    out.data, out.indices, out.indptr = found.data[kept].astype(np.float32), found.indices[kept], indptr
    return out
