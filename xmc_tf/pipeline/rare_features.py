"""Features of held-out documents, as a vectorizer that has not seen these documents would compute them."""

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import Features


def rare_features(counts: np.ndarray | None, held_out: Features) -> np.ndarray | None:
    """Return which sparse features would not exist without the held-out documents: bool, or None for none.

    A vectorizer drops the rarest features. Those that reach the minimum number of documents only with the held-out ones
    occur in these documents, but in no new document: with them, scores of held-out documents would be too low.
    """
    if counts is None or held_out.sparse is None or not counts.any():
        return None
    others = counts - np.bincount(held_out.sparse.indices, minlength=len(counts))
    return (others < counts[counts > 0].min()) & (counts > 0)


def without_features(X: Features, unwanted: np.ndarray | None) -> Features:
    """Return documents without some of their sparse features (bool); each document keeps its norm."""
    if unwanted is None or X.sparse is None:
        return X
    before, kept = _norms(X.sparse), X.sparse.copy()
    kept.data[unwanted[kept.indices]] = 0
    kept.eliminate_zeros()
    after = _norms(kept)
    scale = np.divide(before, after, out=np.ones_like(after), where=after > 0)
    kept.data *= np.repeat(scale, np.diff(kept.indptr)).astype(np.float32)
    return Features(kept, X.dense)


def _norms(matrix: csr_matrix) -> np.ndarray:
    return np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1), np.float64)).ravel()
