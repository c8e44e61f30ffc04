"""Documents of features, whose labels are not easy to tell apart."""

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.label_names import Mentions
from xmc_tf.label_names.kernels import EXACT


def documents(count=600, labels=60, seed=0):
    """Return features and labels of documents: each label has five features of its own, among others by chance."""
    rng = np.random.default_rng(seed)
    own = np.random.default_rng(1).integers(0, 500, (labels, 5))
    X, Y = np.zeros((count, 500), np.float32), np.zeros((count, labels), np.float32)
    for row in range(count):
        chosen = rng.choice(
            labels, rng.integers(1, 4), replace=False, p=np.arange(1, labels + 1) / (labels * (labels + 1) / 2)
        )
        Y[row, chosen] = 1
        X[row, rng.choice(own[chosen].ravel(), 4)] = 1
        X[row, rng.integers(0, 500, 8)] += 1
    return csr_matrix(X / np.linalg.norm(X, axis=1, keepdims=True)), csr_matrix(Y)


def assert_calibrated(found, truth, edges, atol, labels=None, least=0):
    """Check that the share of right answers is their mean probability, within each range of two edges."""
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    right = np.asarray(truth[rows, found.indices]).ravel()
    chosen = np.ones(found.nnz, bool) if labels is None else np.isin(found.indices, labels)
    for low, high in pairwise(edges):
        some = chosen & (found.data >= low) & (found.data < high)
        assert some.sum() > least, (low, high)
        assert abs(found.data[some].mean() - right[some].mean()) < atol, (low, high)


def mentions_of(precisions: spmatrix) -> Mentions:
    """Return mentions of whole names with these precisions: texts × labels."""
    precisions = csr_matrix(precisions).sorted_indices()
    rows = np.repeat(np.arange(precisions.shape[0]), np.diff(precisions.indptr))
    each = np.ones(len(rows), np.int32)
    nothing = dict.fromkeys(Mentions._fields, 0 * each)
    return Mentions(**nothing | {
        "rows": rows, "labels": precisions.indices.astype(np.int64), "precision": precisions.data.astype(np.float32),
        "grade": EXACT * each, "coverage": each, "counts": each, "rarity": 80 * each, "words": each,
    })  # fmt: skip
