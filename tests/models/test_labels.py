"""Labels as a matrix or by name."""

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.models import labels as reading
from xmc_tf.tables.label_forms import read_labels


def label_matrix(labels, names=None):
    return reading.label_matrix(read_labels(labels), names)


def true_labels(labels, *others):
    return reading.true_labels(read_labels(labels), *others)


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
        ([["food"], [3]], None, "neither all names nor all integers(.|\n)*int, str"),
        ([["food"], 5], None, "document 1 has no list of labels"),
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
    with_unknown = true_labels([["a"], [], ["d", "c"]], texts, 3, ["a", "b", "c"])
    assert with_unknown.toarray().tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1]]
    with pytest.raises(InputError, match="do not fit the labels of the training"):
        true_labels(MATRIX, texts, 4, None)
    with pytest.raises(InputError, match="not of the same documents"):
        true_labels(MATRIX, texts[:2], 3, None)
