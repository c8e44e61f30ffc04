import math
import re

import numpy as np
import pytest
import scipy.sparse as smat
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from tests.metrics.reference import reference
from tests.refusals import refused
from xmc_tf.metrics import MEASURES, FrequencyBuckets, inverse_propensity, measure, top_labels
from xmc_tf.metrics.single_label import MistakenLabel, is_single_label, measure_single_label


def rows(*entries, labels=5, dtype=np.float32):
    """Return a CSR matrix from one list of (label, score) per row, stored exactly as given."""
    indptr = np.cumsum([0, *map(len, entries)])
    flat = [pair for row in entries for pair in row]
    return smat.csr_matrix(
        (np.array([s for _, s in flat], dtype), np.array([i for i, _ in flat], np.int32), indptr),
        shape=(len(entries), labels),
    )


TRUTH = rows([(0, 1), (2, 1)], [(1, 1)], [])
PREDICTION = rows([(2, 0.9), (1, 0.8), (0, 0.7)], [(0, 0.6), (1, 0.5)], [(4, 0.3)])


def test_an_example_by_hand():
    overall = measure(TRUTH, PREDICTION, [1, 2, 3])[0]
    assert overall.at("P", 1) == pytest.approx(1 / 3)
    assert overall.at("P", 2) == pytest.approx(2 / 6)
    assert overall.at("P", 3) == pytest.approx(3 / 9)
    assert overall.at("R", 1) == pytest.approx(0.5 / 3)
    assert overall.at("R", 3) == pytest.approx((1 + 1) / 3)
    second = 1 / math.log2(3)
    assert overall.at("nDCG", 1) == pytest.approx(1 / 3)
    assert overall.at("nDCG", 2) == pytest.approx((1 / (1 + second) + second) / 3)
    # 1: found 1 of 3 true with 3 predictions; 3: found 3 of 3 with 6.
    assert overall.at("micro-F1", 1) == pytest.approx(2 / 6)
    assert overall.at("micro-F1", 3) == pytest.approx(6 / 9)
    # Labels 0, 1 and 2 are true somewhere. At 3: label 0 is predicted twice, label 1 twice, label 2 once.
    assert overall.at("macro-F1", 3) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)


def test_propensity_scores_by_hand():
    gains = np.array([4.0, 1.0, 2.0, 1.0, 1.0])
    overall = measure(TRUTH, PREDICTION, [1, 2], gains=gains)[0]
    assert overall.at("PSP", 1) == pytest.approx(2 / (4 + 1))
    assert overall.at("PSP", 2) == pytest.approx((2 + 1) / (4 + 2 + 1))
    assert overall.at("PSnDCG", 1) == pytest.approx(2 / (4 + 1))


def test_propensity_scores_are_left_out_without_gains():
    assert set(measure(TRUTH, PREDICTION, [1])[0].values) == set(MEASURES) - {"PSP", "PSnDCG", "P-near", "P-sibling"}


def test_an_explicit_zero_is_a_prediction_but_no_truth():
    assert top_labels(rows([(3, 0.0), (1, 0.5), (2, -1.0)]), 3).tolist() == [[1, 3, 2]]
    overall = measure(rows([(3, 0), (1, 1)]), rows([(3, 0.5), (1, 0.0)]), [1, 2])[0]
    assert overall.values["P"] == pytest.approx([0, 0.5])

    # Entries stored twice are one label with the sum of the scores.
    twice = rows([(3, 0.3), (1, 0.5), (3, 0.3)])
    assert top_labels(twice, 3).tolist() == [[3, 1, -1]]
    assert measure(rows([(3, 1), (3, 1)]), twice, [1])[0].at("R", 1) == 1


def test_the_given_matrices_are_left_alone():
    truth, prediction = rows([(3, 0), (1, 2), (1, 1)]), rows([(3, 0.3), (1, 0.5), (3, 0.3)])
    kept = [m.copy() for m in (truth.data, truth.indices, prediction.data, prediction.indices)]
    measure(truth, prediction, [1])
    now = (truth.data, truth.indices, prediction.data, prediction.indices)
    assert all(np.array_equal(a, b) for a, b in zip(kept, now, strict=True))


def test_read_only_and_dense_and_csc_inputs_give_the_same():
    expected = measure(TRUTH, PREDICTION, [1, 3])[0].values
    frozen = PREDICTION.copy()
    for array in (frozen.data, frozen.indices, frozen.indptr):
        array.flags.writeable = False
    for truth, prediction in ((TRUTH.tocsc(), frozen), (TRUTH.toarray(), PREDICTION.toarray())):
        values = measure(truth, prediction, [1, 3])[0].values
        assert all(values[name] == pytest.approx(expected[name]) for name in expected)


def test_the_buckets_add_up_to_the_whole():
    buckets = FrequencyBuckets.by_frequency(np.array([1, 20, 1, 0, 3]), [1, 10])
    overall, *parts = measure(TRUTH, PREDICTION, [1, 2, 3], buckets=buckets)
    assert [part.bucket for part in parts] == ["0", "1", "2 to 10", "over 10"]
    assert [part.labels for part in parts] == [0, 2, 0, 1]
    assert [part.documents for part in parts] == [0, 1, 0, 1]
    assert np.nansum([part.values["P"] for part in parts], axis=0) == pytest.approx(overall.values["P"])
    assert parts[3].at("R", 2) == 1
    assert all(np.isnan(parts[0].values[name]).all() for name in parts[0].values)


@pytest.mark.parametrize(
    ("ks", "prediction", "words"),
    [
        ([0, 1], PREDICTION, "whole numbers from 1"),
        ([], PREDICTION, "none"),
        ([1], rows([(0, 1)]), "received: 1 documents × 5 labels"),
        ([1], rows([(0, 1)], [], [(1, np.nan)]), "document 2, label 1 is NaN"),
    ],
)
def test_what_cannot_be_measured_raises_an_error(ks, prediction, words):
    refused(words, measure, TRUTH, prediction, ks, name="pred.npz")


@st.composite
def problems(draw):
    """Truth, scores and which of them are stored, small and full of ties, empty rows and unseen labels."""
    documents, labels = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    cells = documents * labels
    shape = (documents, labels)
    truth = np.array(draw(st.lists(st.booleans(), min_size=cells, max_size=cells))).reshape(shape)
    stored = np.array(draw(st.lists(st.booleans(), min_size=cells, max_size=cells))).reshape(shape)
    levels = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0])
    scores = np.array(draw(st.lists(levels, min_size=cells, max_size=cells))).reshape(shape)
    group = np.array(draw(st.lists(st.integers(0, 2), min_size=labels, max_size=labels)), np.int32)
    weights = st.sampled_from([1.0, 1.5, 3.0, 10.0])
    gains = np.array(draw(st.lists(weights, min_size=labels, max_size=labels)))
    return truth, scores, stored, group, gains


def as_stored(scores, stored):
    rows, columns = np.nonzero(stored)
    # Backwards, so that no row comes in order.
    rows, columns = rows[::-1], columns[::-1]
    order = np.argsort(rows, kind="stable")
    rows, columns = rows[order], columns[order]
    indptr = np.searchsorted(rows, np.arange(len(scores) + 1))
    return smat.csr_matrix((scores[rows, columns], columns.astype(np.int32), indptr), shape=scores.shape)


@settings(max_examples=60)
@given(problems())
def test_measures_equal_their_definitions(problem):
    truth, scores, stored, group, gains = problem
    buckets = FrequencyBuckets(("a", "b", "c"), group)
    ks = [1, 2, 4, 9]
    measured = measure(
        smat.csr_matrix(truth.astype(float)), as_stored(scores, stored), ks, buckets=buckets, gains=gains
    )
    everything = np.ones(len(group), bool)
    for measures, chosen in zip(measured, [everything, *(group == g for g in range(3))], strict=True):
        for k in ks:
            if measures.bucket and chosen.all():
                continue  # over a bucket of everything, documents without labels still do not count
            expected = reference(truth, scores, stored, k, gains, chosen)
            for name in measures.values:
                if expected is None:
                    value = measures.at(name, k)
                    assert np.isnan(value) or value == 0
                else:
                    assert measures.at(name, k) == pytest.approx(expected[name]), (measures.bucket, name, k)


def test_no_documents_are_no_measurement():
    refused("no documents", measure, smat.csr_matrix((0, 5)), smat.csr_matrix((0, 5)), [1])


def test_a_notebook_shows_a_table():
    html = measure(TRUTH, PREDICTION, [1, 2])[0]._repr_html_()
    assert html.startswith("<table><tr><td>%</td><td>@1</td><td>@2</td></tr><tr><td>P</td><td>33.33</td>")
    assert html.count("<tr>") == html.count("</tr>") == 1 + len(measure(TRUTH, PREDICTION, [1, 2])[0].values)


def test_bounds_are_included():
    buckets = FrequencyBuckets.by_frequency(np.array([0, 1, 10, 11, 50, 51]), [10, 50])
    assert buckets.names == ("0", "1 to 10", "11 to 50", "over 50")
    assert buckets.of_label.tolist() == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("bounds", [[], [0, 5], [5, 5], [9, 5]])
def test_bounds_that_make_no_buckets(bounds):
    refused("ascending", FrequencyBuckets.by_frequency, np.array([1]), bounds)


def test_propensities_by_hand():
    # C = (ln 1000 - 1) * 2.5^0.55 = 9.7797…
    weights = inverse_propensity(np.array([0, 10, 1000]), 1000)
    c = (np.log(1000) - 1) * 2.5**0.55
    assert weights == pytest.approx([1 + c / 1.5**0.55, 1 + c / 11.5**0.55, 1 + c / 1001.5**0.55])
    assert np.all(np.diff(weights) < 0)


def test_few_documents_never_give_weights_below_one():
    assert inverse_propensity(np.array([0, 1]), 2).tolist() == [1, 1]


def test_impossible_propensity_parameters():
    refused("training documents", inverse_propensity, np.array([0]), 0)
    refused("parameter B", inverse_propensity, np.array([0]), 10, b=-1)
    for numbers in ({"a": np.nan}, {"a": np.inf}, {"b": np.nan}, {"b": np.inf}):
        refused(f"parameter {next(iter(numbers)).upper()} is", inverse_propensity, np.array([0]), 10, **numbers)


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
    assert "most frequent label  50.00" in "\n".join(found.lines(None))
    assert re.search(r"zero +one +2 +67%", "\n".join(found.lines(["zero", "one", "two", "three"])))
    assert re.search(r"0 +1 +2 +67%", "\n".join(found.lines(None)))
    assert "most frequent label  25.00" in "\n".join(found.lines(None, 0.25))


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
