"""The most similar documents of each document, by the cosine of their sparse features."""

import numpy as np
from scipy.sparse import csr_matrix, diags, vstack

from xmc_tf.audit.companions import largest_of_rows

_CELLS = 30_000_000  # similarities at a time, to bound memory
_COMMON = 0.05  # features of more than this share of the documents say little, and cost most
_COMMON_LEAST = 200


def unit_rows(X: csr_matrix) -> csr_matrix:
    """Return rows of length 1."""
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1), np.float64)).ravel()
    return csr_matrix(diags(1.0 / np.maximum(norms, 1e-12)) @ X).astype(np.float32)


def neighbours(X: csr_matrix, most: int) -> csr_matrix:
    """Return the similarities to the most similar other documents: documents × documents.

    Args:
        X: features of the documents, rows of length 1.
        most: number of similar documents of each.
    """
    X = csr_matrix(X)
    documents = np.bincount(X.indices, minlength=X.shape[1])
    rare = documents <= max(_COMMON * X.shape[0], _COMMON_LEAST)
    seen = csr_matrix(X @ diags(rare.astype(np.float32)))
    seen.eliminate_zeros()
    turned = csr_matrix(seen.T)
    block = int(np.clip(_CELLS // max(X.shape[0], 1), 16, 4096))
    parts = []
    for begin in range(0, X.shape[0], block):
        found = csr_matrix(seen[begin : begin + block] @ turned)
        rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
        found.data[(found.indices == rows + begin) | (found.data < 0.05)] = 0
        found.eliminate_zeros()
        parts.append(largest_of_rows(found, most))
    return csr_matrix(vstack(parts, format="csr"))
