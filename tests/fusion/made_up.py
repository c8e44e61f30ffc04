"""Documents of features, whose labels are not easy to tell apart."""

import numpy as np
from scipy.sparse import csr_matrix


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
