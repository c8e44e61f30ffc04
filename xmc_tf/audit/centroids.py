"""Similarity of a document to the other documents of a label."""

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.audit.pairs import LabelPairs

_CELLS = 30_000_000  # similarities at a time, to bound memory


def similarity_to_labels(X: csr_matrix, Y: csr_matrix, pairs: LabelPairs) -> np.ndarray:
    """Return the cosine of each pair's document and the sum of the label's other documents, and how alike these are.

    Args:
        X: features of the documents, rows of length 1.
        Y: the labels of the documents, with ones.
        pairs: the pairs.

    Returns:
        float64 [pairs, 2]: the cosine; the mean cosine of two other documents of the label.
    """
    documents = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float64)
    centroids = csr_matrix(Y.astype(np.float32).T @ X)
    squares = np.asarray(centroids.multiply(centroids).sum(axis=1), np.float64).ravel()
    own = pairs.values(Y) > 0
    dots = np.zeros(len(pairs.rows))
    turned = csr_matrix(centroids.T)
    block = int(np.clip(_CELLS // max(Y.shape[1], 1), 16, 4096))
    for begin in range(0, X.shape[0], block):
        first, last = np.searchsorted(pairs.rows, [begin, begin + block])
        some = LabelPairs(pairs.rows[first:last] - begin, pairs.labels[first:last], pairs.nr_labels)
        dots[first:last] = some.values(csr_matrix(X[begin : begin + block] @ turned))
    length = np.asarray(X.multiply(X).sum(axis=1), np.float64).ravel()[pairs.rows]
    others = documents[pairs.labels] - own
    left = np.maximum(squares[pairs.labels] - own * (2 * dots - length), 0.0)
    dots = np.maximum(dots - own * length, 0.0)
    cosine = np.divide(dots, np.sqrt(left), out=np.zeros(len(dots)), where=left > 1e-9)
    alike = np.clip((left - others) / np.maximum(others * (others - 1), 1.0), 0.0, 1.0)
    return np.column_stack([cosine, alike])
