"""Labels as a matrix or by name."""

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.models.labels import label_matrix, true_labels

MATRIX = csr_matrix(np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], np.float32))


def test_names_are_sorted_or_in_the_order_that_is_given():
    documents = [["roses", "food"], [], ("kitchen", "kitchen")]
    Y, names = label_matrix(documents)
    assert names == ["food", "kitchen", "roses"]
    assert Y.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert (Y.dtype, Y.format) == (np.float32, "csr")
    Y, names = label_matrix(documents, ["roses", "unused", "kitchen", "food"])
    assert names == ["roses", "unused", "kitchen", "food"]
    assert Y.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_a_matrix_is_taken_as_it_is():
    Y, names = label_matrix(MATRIX)
    assert Y is MATRIX
    assert names is None
    assert label_matrix(MATRIX, ("a", "b", "c"))[1] == ["a", "b", "c"]
    assert label_matrix(coo_matrix(MATRIX))[0].format == "csr"


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        (["food", "roses"], None, r"the labels of document 0 are not a list\n.*\n.*'food'\n.*\[\[label\] for label"),
        ([["food"], [3]], None, r"the labels of document 1 are not names\n.*text\n.*3"),
        ([["food"], None], None, "the labels of document 1 are not a list"),
        ([["food"], ["rosse"]], ["food", "roses"], r"document 1 has an unknown label: 'rosse'\n.*\n.*mean 'roses'\?"),
        ([["food"], ["x"]], ["food", "roses"], "add it to names, or remove it"),
        ([["food"]], ["food", "roses", "food"], "contain 'food' more than once"),
        ([["two\nlines"]], None, "label name 0 cannot be used"),
        ([["food"]], ["food", " "], "label name 1 cannot be used"),
        ([[], []], None, "contain no label"),
    ],
)
def test_labels_that_cannot_be_used(labels, names, message):
    with pytest.raises(InputError, match=message):
        label_matrix(labels, names)


def test_true_labels_are_those_of_the_model():
    texts = ["one", "two", "three"]
    assert (true_labels(MATRIX, texts, 3, None) != MATRIX).nnz == 0
    by_name = true_labels([["a", "c"], [], ["b"]], texts, 3, ["a", "b", "c"])
    assert (by_name != MATRIX).nnz == 0
    with pytest.raises(InputError, match="labels have no names"):
        true_labels([["a"], [], []], texts, 3, None)
    with pytest.raises(InputError, match="document 2 has an unknown label: 'd'"):
        true_labels([["a"], [], ["d"]], texts, 3, ["a", "b", "c"])
    with pytest.raises(InputError, match="do not fit the labels of the training"):
        true_labels(MATRIX, texts, 4, None)
    with pytest.raises(InputError, match="not of the same documents"):
        true_labels(MATRIX, texts[:2], 3, None)
