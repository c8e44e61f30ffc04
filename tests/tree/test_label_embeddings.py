"""Label embeddings against their definition, for each kind of features."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, issparse

from tests.refusals import refused
from tests.tree.cases import dense, sparse
from xmc_tf.data.features import Features
from xmc_tf.tree import label_embeddings
from xmc_tf.tree.label_embeddings import label_embedding


def unit_rows(matrix):
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.divide(matrix, norms, out=np.zeros_like(matrix), where=norms > 0)


def pifa(X, Y):
    """Compute label embeddings by definition, in dense double precision."""
    return unit_rows(unit_rows(Y.toarray().astype(np.float64)).T @ X.astype(np.float64))


def labels(rows=50, columns=12, seed=1):
    matrix = sparse(rows, columns, density=0.15, seed=seed)
    matrix.data = np.ceil(matrix.data * 3)  # weights of 1 to 3
    return matrix


X, Y = sparse(50), labels()


@settings(max_examples=50)
@given(
    rows=st.integers(0, 40),
    columns=st.sampled_from([1, 63, 64, 65, 5000]),
    nr_labels=st.integers(1, 20),
    threads=st.integers(1, 3),
    seed=st.integers(0, 5),
)
def test_pifa_of_sparse_features(rows, columns, nr_labels, threads, seed):
    features = sparse(rows, columns, density=min(0.3, 60 / columns), seed=seed)
    truth = labels(rows, nr_labels, seed)
    result = label_embedding("pifa", features, truth, threads=threads)
    assert issparse(result)
    assert result.format == "csr"
    assert result.dtype == np.float32
    assert result.shape == (nr_labels, columns)
    for row in range(nr_labels):  # checked by hand: the flag says so already
        inside = result.indices[result.indptr[row] : result.indptr[row + 1]]
        assert np.all(inside[1:] > inside[:-1])
    np.testing.assert_allclose(result.toarray(), pifa(features.toarray(), truth), atol=1e-6)


def whole(result):
    """Return embeddings of any kind as one dense matrix."""
    if isinstance(result, Features):
        return np.hstack([result.sparse.toarray(), result.dense])
    return result.toarray() if issparse(result) else result


def test_dense_and_mixed_features_are_scaled_together_and_keep_their_kinds(monkeypatch):
    result = label_embedding("pifa", dense(50), Y)
    assert result.flags.c_contiguous
    np.testing.assert_allclose(result, pifa(dense(50), Y), atol=1e-6)
    expected = pifa(np.hstack([X.toarray(), dense(50)]), Y)
    np.testing.assert_allclose(whole(label_embedding("pifa", Features(X, dense(50)), Y)), expected, atol=1e-6)
    monkeypatch.setattr(label_embeddings, "CHUNK_ENTRIES", 20)  # many ranges of labels
    np.testing.assert_allclose(label_embedding("pifa", X, Y).toarray(), pifa(X.toarray(), Y), atol=1e-6)


@pytest.mark.parametrize("features", [X, dense(50), Features(X, dense(50))])
def test_the_number_of_threads_changes_nothing(features):
    one, three = (label_embedding("pifa", features, Y, threads=threads) for threads in (1, 3))
    for a, b in zip(as_parts(one), as_parts(three), strict=True):
        assert np.array_equal(a, b)


def as_parts(result):
    if isinstance(result, Features):
        return [*as_parts(result.sparse), *as_parts(result.dense)]
    return [result.indptr, result.indices, result.data] if issparse(result) else [result]


def test_pii_is_the_documents_of_a_label():
    turned = Y.tocsc()
    result, values = label_embedding("pii", None, turned), Y.tocsc().data
    assert result.format == "csr"
    assert result.has_sorted_indices
    np.testing.assert_allclose(result.toarray(), unit_rows(Y.toarray().T), atol=1e-6)
    assert np.array_equal(turned.data, values)  # the caller's labels are left alone


def test_labels_without_documents_have_empty_embeddings():
    truth = csr_matrix(np.array([[1, 0, 0], [0, 0, 1]], np.float32))
    features = csr_matrix(np.array([[3, 0], [0, 0]], np.float32))
    assert label_embedding("pifa", features, truth).toarray().tolist() == [[1, 0], [0, 0], [0, 0]]
    assert label_embedding("pifa", features.toarray(), truth).tolist() == [[1, 0], [0, 0], [0, 0]]
    assert label_embedding("pii", None, truth).toarray().tolist() == [[1, 0], [0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tfidf", X, Y), "unknown label embedding"),
        (("pifa", X, Y.toarray()), "label matrix is not sparse"),
        (("pifa", None, Y), "pifa needs the features"),
        (("pifa", sparse(49), Y), "different numbers of documents"),
    ],
)
def test_inputs_that_do_not_fit_raise_an_error(arguments, message):
    refused(message, label_embedding, *arguments)


def test_labels_that_are_no_numbers_are_named():
    truth = Y.copy()
    truth.data[truth.indptr[4]] = np.nan
    row = int(np.searchsorted(truth.indptr, truth.indptr[4], side="right") - 1)
    refused(f"labels of document {row} hold NaN", label_embedding, "pii", None, truth)


def test_of_many_features_the_strongest_are_kept(monkeypatch):
    features, truth = sparse(40, 200, density=0.3, seed=2), labels(40, 9, 2)
    expected = label_embedding("pifa", features, truth).toarray()
    monkeypatch.setattr(label_embeddings, "MANY_ENTRIES", 10)
    monkeypatch.setattr(label_embeddings, "STRONGEST", 7)
    monkeypatch.setattr(label_embeddings, "CHUNK_ENTRIES", 500)
    for threads in (1, 3):
        ours = label_embedding("pifa", features, truth, threads=threads).toarray()
        for row, right in zip(ours, expected, strict=True):
            kept = np.zeros_like(right)
            strongest = np.argsort(-np.abs(right), kind="stable")[:7]
            kept[strongest] = right[strongest]
            np.testing.assert_allclose(row, kept / max(np.linalg.norm(kept), 1e-9), atol=1e-6)


def test_few_features_are_all_kept(monkeypatch):
    features = sparse(40, 200, density=0.3, seed=2)
    truth = labels(40, 9, 2)
    entries = sum(features[truth[:, j].nonzero()[0]].nnz for j in range(9))
    expected = label_embedding("pifa", features, truth)
    monkeypatch.setattr(label_embeddings, "STRONGEST", 7)
    monkeypatch.setattr(label_embeddings, "MANY_ENTRIES", entries)
    assert (label_embedding("pifa", features, truth) != expected).nnz == 0
    monkeypatch.setattr(label_embeddings, "MANY_ENTRIES", entries - 1)
    assert label_embedding("pifa", features, truth).nnz < expected.nnz
