"""Labels as a matrix or by name."""

import numpy as np
import pytest

from tests.refusals import refused
from xmc_tf.models import labels as reading
from xmc_tf.tables.label_forms import read_labels


def label_matrix(labels, names=None):
    return reading.label_matrix(read_labels(labels), names)


def test_names_are_sorted_or_in_the_order_that_is_given():
    documents = [["roses", "food"], [], ("kitchen", "kitchen")]
    Y, names = label_matrix(documents)
    assert names == ["food", "kitchen", "roses"]
    assert Y.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert (Y.dtype, Y.format) == (np.float32, "csr")
    Y, names = label_matrix(documents, ["roses", "unused", "kitchen", "food"])
    assert names == ["roses", "unused", "kitchen", "food"]
    assert Y.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([["food"], ["rosse"]], ["food", "roses"], r"document 1 has an unknown label: 'rosse'\n.*\n.*mean 'roses'\?"),
        ([["food"], ["x"]], ["food", "roses"], "add it to names, or remove it"),
        ([["food"]], ["food", "roses", "food"], "contain 'food' more than once"),
        ([["two\nlines"]], None, "label name 0 cannot be used"),
        ([["food"]], ["food", " "], "label name 1 cannot be used"),
    ],
)
def test_labels_that_cannot_be_used(labels, names, message):
    refused(message, label_matrix, labels, names)
