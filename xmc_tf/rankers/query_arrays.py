"""Inputs and results of a search: features in the form that kernels read, and predictions as matrices."""

from copy import copy
from functools import lru_cache

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.array_views import kernel_view
from xmc_tf.common.errors import InputError
from xmc_tf.data.features import Features


def sparse_arrays(matrix: spmatrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the starts, indices and values of a CSR or CSC matrix in the form that kernels read."""
    starts, indices = kernel_view(matrix.indptr, np.int64), kernel_view(matrix.indices, np.int32)
    return starts, indices, kernel_view(matrix.data, np.float32)


def kernel_form(X: Features) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return sparse features (CSR) and dense features in the form that kernels read."""
    n = X.nr_rows
    dense = np.zeros((n, 0), np.float32) if X.dense is None else kernel_view(X.dense, np.float32)
    if X.sparse is None:
        return np.zeros(n + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), dense
    return *sparse_arrays(X.sparse), dense


def code_arrays(codes: spmatrix, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the parents to start from and their scores as CSR arrays in the form that kernels read."""
    if codes.shape != shape:
        raise InputError(
            "the codes to start the search from have the wrong shape",
            expected=f"{shape[0]:,} documents × {shape[1]:,} parents of the first level",
            received=f"{codes.shape[0]:,} × {codes.shape[1]:,}",
        )
    m = csr_matrix(codes)
    if not m.has_canonical_format:
        m = m.copy()
        m.sum_duplicates()
    return m.indptr.astype(np.int64), m.indices.astype(np.int32), m.data.astype(np.float32)


def ranked_csr(nodes: np.ndarray, scores: np.ndarray, found: np.ndarray, nr_labels: int) -> csr_matrix:
    """Return a CSR matrix in which the labels of each row are ordered by score, not by number."""
    n, k = nodes.shape
    if n and found.min() == k:
        indptr = np.arange(0, n * k + 1, k) if k else np.zeros(n + 1, np.int64)
        indices, data = nodes.ravel(), scores.ravel()
    else:
        keep = np.arange(k) < found[:, None]
        indptr = np.concatenate([[0], np.cumsum(found)])
        indices, data = nodes[keep], scores[keep]
    # Copied, and then set directly: scipy's checks would take as long as a third of the search of one query.
    result = copy(_empty_csr(n, nr_labels))
    result.indptr = indptr.astype(np.int32) if indptr[-1] < 2**31 else indptr
    result.indices, result.data = indices, data
    return result


@lru_cache(maxsize=4)
def _empty_csr(rows: int, columns: int) -> csr_matrix:
    return csr_matrix((rows, columns), dtype=np.float32)
