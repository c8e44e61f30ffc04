"""Features of held-out documents, compared with those of a vectorizer that has not seen the documents."""

import numpy as np
from scipy.sparse import random

from xmc_tf.data import as_features
from xmc_tf.pipeline.held_out import rare_features, without_features


def documents(seed=0):
    """Return features in which each occurs in at least two documents, of norm 1."""
    counts = random(60, 40, 0.1, format="csr", dtype=np.float32, rng=np.random.default_rng(seed))
    counts = counts[:, counts.getnnz(axis=0) >= 2].tocsr()
    norms = np.sqrt(counts.multiply(counts).sum(axis=1)).A1
    counts.data /= np.repeat(np.where(norms > 0, norms, 1), np.diff(counts.indptr)).astype(np.float32)
    return as_features(counts)


def test_features_that_only_held_out_documents_make_frequent_are_rare():
    X, held_out = documents(), np.arange(0, 60, 5)
    counts = np.bincount(X.sparse.indices, minlength=X.nr_sparse)
    rare = rare_features(counts, X.rows(held_out))
    others = np.setdiff1d(np.arange(60), held_out)
    assert np.array_equal(rare, X.sparse[others].getnnz(axis=0) < 2)
    assert rare.any()
    assert not rare.all()


def test_documents_without_features_keep_their_norm_and_their_other_features():
    X = documents()
    unwanted = np.arange(X.nr_sparse) % 3 == 0
    kept = without_features(X, unwanted).sparse
    expected = np.where(unwanted, 0, X.sparse.toarray())
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    expected = np.divide(expected, norms, out=np.zeros_like(expected), where=norms > 0)
    assert np.allclose(kept.toarray(), expected, atol=1e-6)
    assert kept.has_sorted_indices
    assert not (kept.data == 0).any()


def test_dense_features_stay():
    X = as_features(np.ones((3, 2), np.float32))
    assert rare_features(None, X) is None
    assert without_features(X, None) is X
    both = as_features((documents().sparse, np.ones((60, 2), np.float32)))
    assert without_features(both, np.ones(both.nr_sparse, bool)).dense is both.dense
