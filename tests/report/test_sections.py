"""The sections' figures, against a straightforward count."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.report.cases import inputs, matrices
from xmc_tf.report import make_report
from xmc_tf.report.page.overview import by_threshold
from xmc_tf.report.sections.labels import measure_coverage
from xmc_tf.report.sections.scores import Pairs, find_thresholds, measure_calibration


@pytest.fixture
def pairs():
    truth, predicted, _ = matrices()
    return Pairs.of(truth, predicted)


def by_hand(threshold):
    """Return precision, recall, F1, labels per document and share of documents with a label."""
    truth, predicted, _ = matrices()
    true, accepted = truth.toarray() > 0, (predicted.toarray() >= threshold) & (predicted.toarray() != 0)
    right = (true & accepted).sum()
    precision, recall = right / accepted.sum(), right / true.sum()
    return [precision, recall, 2 * precision * recall / max(precision + recall, 1e-9), accepted.sum() / len(true),
            accepted.any(axis=1).mean()]  # fmt: skip


def test_points_of_the_curve_are_counted(pairs):
    for point in find_thresholds(pairs).curve:
        expected = by_hand(point.threshold)
        assert [point.precision, point.recall, point.f1, point.labels_per_document, point.documents_with_label] == (
            pytest.approx(expected)
        )


def test_the_best_threshold_and_those_for_a_precision_are_the_best_there_are(pairs):
    found = find_thresholds(pairs, (0.3, 0.9, 1.1))
    candidates = np.unique(pairs.scores)
    assert found.best.f1 == pytest.approx(max(by_hand(score)[2] for score in candidates))
    (_, low), (_, high), (_, impossible) = found.for_precision
    reached = [score for score in candidates if by_hand(score)[0] >= 0.3]
    assert low.recall == pytest.approx(by_hand(min(reached))[1])
    assert high.precision >= 0.9
    assert impossible is None


def test_a_best_threshold_of_zero_has_a_chart():
    rows = np.arange(2)
    found = find_thresholds(Pairs(rows, rows, np.zeros(2), np.ones(2, bool), 2, 2, 2))
    assert by_threshold(found.curve, 0.0).x.title == "threshold"


def test_calibration_is_the_weighted_distance_by_bin():
    scores = np.array([0.05, 0.05, 0.95, 0.95, 0.95, 1.0])
    correct = np.array([0, 1, 1, 1, 0, 1], bool)
    found = measure_calibration(Pairs(np.arange(6), np.arange(6), scores, correct, 4, 6, 6))
    assert found.error == pytest.approx((2 * abs(0.05 - 0.5) + 4 * abs((3 * 0.95 + 1) / 4 - 0.75)) / 6)
    assert found.bias == pytest.approx(scores.mean() - correct.mean())
    assert [one.count for one in found.bins] == [2, 0, 0, 0, 0, 0, 0, 0, 0, 4]


def test_coverage_counts_labels_pairs_and_documents():
    truth = csr_matrix(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], np.float32))
    found = measure_coverage(truth, np.array([5, 0, 0, 0]))
    assert (found.labels, found.unseen_labels, found.pairs, found.unseen_pairs) == (4, 3, 5, 4)
    assert found.unseen_documents == 2
    assert found.share_of_pairs == pytest.approx(0.8)


def test_confused_pairs_are_counted_document_by_document():
    report = make_report(inputs())
    missed, wrong = report.decisions.missed.toarray() > 0, report.decisions.wrong.toarray() > 0
    expected = missed.T.astype(int) @ wrong.astype(int)
    assert report.confusion.pairs[0].documents == expected.max()
    for pair in report.confusion.pairs:
        assert pair.documents == expected[pair.true, pair.assigned]


def test_examples_are_what_their_headings_say():
    report = make_report(inputs())
    truth = report.inputs.truth.toarray() > 0
    assert {example.kind for example in report.examples} >= {"wrong", "missed"}
    assert len({example.document for example in report.examples}) == len(report.examples)
    for example in report.examples:
        shown = {one.label: one for one in example.labels}
        assert {label for label, one in shown.items() if one.true} == set(np.flatnonzero(truth[example.document]))
        if example.kind == "right":
            assert all(one.true for one in shown.values() if one.assigned)
        if example.kind == "missed":
            assert not any(one.assigned and one.true for one in shown.values())
