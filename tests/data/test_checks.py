"""Checks of inputs: an error if they do not fit together, a count if they are merely unusual."""

import logging

import numpy as np
import pytest
import scipy.sparse as sp

from tests.refusals import refused
from xmc_tf.data import (
    Features,
    TextFile,
    as_features,
    check_labels,
    check_pair,
    check_prediction_input,
    check_training_input,
    check_validation_input,
)


@pytest.fixture(name="Y")
def labels():
    return sp.csr_matrix(np.array([[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]], np.float32))


@pytest.fixture(name="X")
def features():
    return sp.csr_matrix(np.eye(3, 5, dtype=np.float32))


def fails(*words, **given) -> None:
    refused(words, check_training_input, **given)


def test_unusual_input_is_counted_and_logged(tmp_path, X, Y, caplog):
    (tmp_path / "X.txt").write_text("a\nb\nc\n")
    with caplog.at_level(logging.INFO):
        check_training_input(texts=TextFile(tmp_path / "X.txt"), X=X, Y=Y, names=list("abcd"), files={"Y": "Y.npz"})
    assert "the labels Y (Y.npz): 1 of 4 labels have no document" in caplog.text
    assert "the labels Y (Y.npz): 1 of 3 documents have no label" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        check_training_input(texts=["a", "b", "c"], Y=Y.tocsc())
    assert "1 of 4 labels have no document" in caplog.text
    assert "1 of 3 documents have no label" in caplog.text


def test_numbers_that_were_looked_at_are_not_looked_at_again(X, Y):
    X.data[1] = np.nan
    fails("is nan", X=X, Y=Y)
    check_training_input(X=X, Y=Y, loaded=True)
    Y.data[0] = -1  # which a matrix may hold, but not one of labels
    fails("values above 0", X=X, Y=Y, loaded=True)


def test_rows_that_disagree(X, Y):
    files = {"X": "X.npz", "Y": "Y.npz", "texts": "X.txt"}
    words = ["(X.npz)", "(Y.npz)", "have different numbers of documents", ", 2", "received: 3", "same order"]
    fails(*words, X=X[:2], Y=Y, files=files)
    fails("texts (X.txt) and the labels Y (Y.npz) have", "received: 3", texts=["a"], Y=Y, files=files)
    fails(*words, X=X[:2], Y=Y, files=files, loaded=True)
    refused("have different numbers of documents", check_pair, Features(dense=np.ones((2, 2), np.float32)), Y)


def test_labels(X, Y):
    empty = sp.csr_matrix((3, 4), dtype=np.float32)
    fails("contain no label", "3 rows, 4 columns, no entry", X=X, Y=empty)
    negative = Y.copy()
    negative.data[2] = -1
    fails("row 2, column 1 (counted from 0) is -1", "eliminate_zeros", X=X, Y=negative)
    fails("row 2, column 1 (counted from 0) is -1", X=X, Y=negative.tocsc())
    negative.data[2] = 0
    fails("row 2, column 1 (counted from 0) is 0", X=X, Y=negative)
    fails("are not a CSR or CSC matrix", "an array of shape (3, 4)", X=X, Y=Y.toarray())
    fails("there are no training inputs", Y=Y)
    fails("expected: a name for each of the 4 labels", "received: 2 names", X=X, Y=Y, names=["a", "b"])


def test_ids_out_of_range(X, Y):
    X.indices[1] = 5
    fails("the features X (3 rows, 5 features)", "indices from 0 to 4", "received: 5 in row 1", X=X, Y=Y)
    Y.indices[0] = -1
    fails("the labels Y (3 rows, 4 labels)", "received: -1 in row 0", Y=Y, texts=["a", "b", "c"])


def test_features(X, Y):
    fails("are empty", "3 rows, 0 columns", X=sp.csr_matrix((3, 0), dtype=np.float32), Y=Y)
    fails("is nan", X=np.full((3, 2), np.nan, np.float32), Y=Y)
    fails("are not a supported matrix", "received: list", X=[[1], [2], [3]], Y=Y)
    fails("are not a supported matrix", "in coo format", X=X.tocoo(), Y=Y)
    dense = np.ones((3, 2), np.float32)
    check_training_input(X=Features(X, dense), Y=Y)
    dense[1, 1] = np.inf
    fails("row 1, column 1", "inf", X=Features(X, dense), Y=Y)


def test_prediction_input(X):
    check_prediction_input(X, 5)
    refused(r"do not fit the model(.|\n)*expected: 7 features(.|\n)*received: 5", check_prediction_input, X, 7)


def test_validation_input(Y):
    check_validation_input(Y, 4)
    refused(r"do not fit the training labels(.|\n)*5 labels(.|\n)*received: 4", check_validation_input, Y, 5)
    refused("not a CSR or CSC matrix", check_labels, None)


def test_features_side_by_side(X):
    dense = np.arange(6, dtype=np.float64).reshape(3, 2)
    both = as_features((X, dense))
    assert both.shape == (3, 7)
    assert (both.nr_sparse, both.nr_dense, both.nr_rows) == (5, 2, 3)
    assert both.dense.dtype == np.float32
    assert as_features(both) is both
    assert as_features(X).sparse is X
    assert as_features(X).dense is None
    rows = both.rows(np.array([2, 0]))
    np.testing.assert_array_equal(rows.dense, dense[[2, 0]])
    np.testing.assert_array_equal(rows.sparse.toarray(), X.toarray()[[2, 0]])
    assert as_features(dense).rows(slice(1, 3)).shape == (2, 2)
    assert as_features(X.tocsc().astype(np.float64)).sparse.dtype == np.float32


def test_features_are_put_in_order_without_touching_the_callers():
    X = sp.csr_matrix((np.ones(2, np.float32), np.array([1, 0], np.int32), np.array([0, 2], np.int32)), shape=(1, 2))
    X.indices.flags.writeable = False  # as a mapped one would be
    assert as_features(X).sparse.indices.tolist() == [0, 1]
    assert X.indices.tolist() == [1, 0]


def test_features_that_are_none(X):
    refused("there are no features", Features)
    refused(r"different numbers of documents(.|\n)*3 sparse rows and 2 dense rows", as_features, (X, np.ones((2, 2))))
    refused("not a matrix of numbers", as_features, np.array(["a"]))
    refused("not a sparse matrix", as_features, (np.ones((2, 2)), np.ones((2, 2))))
