"""Accuracy, F1 and confusion matrix of single-label data, against numbers calculated by hand."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.refusals import refused
from xmc_tf.metrics.single_label import MistakenLabel, is_single_label, measure_single_label

TRUE = [0, 0, 0, 1, 1, 2]
FOUND = [0, 1, 1, 1, 1, 0]


def _of(labels, count=4):
    return csr_matrix(np.eye(count, dtype=np.float32)[labels])


def test_measures_by_hand():
    found = measure_single_label(_of(TRUE), 0.5 * _of(FOUND) + 0.1 * _of([3] * 6))
    assert found.accuracy == found.micro_f1 == pytest.approx(3 / 6)
    # F1: label 0: 2·1/(3+2), label 1: 2·2/(2+4)... label 2: 0; label 3 does not occur.
    assert found.macro_f1 == pytest.approx((2 / 5 + 4 / 6 + 0) / 3)
    assert found.matrix.toarray()[:3, :3].tolist() == [[1, 2, 0], [0, 2, 0], [1, 0, 0]]
    assert found.confusions() == [MistakenLabel(0, 1, 2, 2 / 3), MistakenLabel(2, 0, 1, 1.0)]
    assert found.confusions(1) == [MistakenLabel(0, 1, 2, 2 / 3)]


def test_a_document_without_prediction_is_wrong():
    predicted = _of(TRUE)
    predicted.data[:3] = 0
    predicted.eliminate_zeros()
    found = measure_single_label(_of(TRUE), predicted)
    assert found.accuracy == 0.5
    assert found.micro_f1 == pytest.approx(2 * 3 / (6 + 3))


def test_several_labels_are_refused():
    two = _of(TRUE) + _of([3] * 6)
    assert is_single_label(_of(TRUE))
    assert not is_single_label(two)
    assert not is_single_label(csr_matrix((2, 3)))
    refused("document 0 has 2 labels", measure_single_label, two, two)
