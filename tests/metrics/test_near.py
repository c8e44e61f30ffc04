"""Near misses: by hand, and against a loop over the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from xmc_tf.metrics import FrequencyBuckets, measure, top_labels
from xmc_tf.metrics.compare import compare
from xmc_tf.metrics.measures import mark_near
from xmc_tf.metrics.ranking import as_truth, mark_hits

ANIMALS, CATS, DOGS, TEA, COFFEE = range(5)
DRINKS = 5  # a broader term that is not a label


def terms(labels, *pairs, count=None):
    """Return labels × terms with the given pairs of label and broader term."""
    rows, columns = zip(*pairs, strict=True) if pairs else ((), ())
    return csr_matrix((np.ones(len(pairs)), (rows, columns)), shape=(labels, count or labels))


BY_HAND = terms(5, (CATS, ANIMALS), (DOGS, ANIMALS), (TEA, DRINKS), (COFFEE, DRINKS), count=6)


def test_an_example_by_hand():
    truth = csr_matrix(np.eye(5)[[CATS, ANIMALS, TEA, CATS]])
    scores = np.zeros((4, 5))
    scores[0, [DOGS, ANIMALS]] = 0.9, 0.8  # a sibling, then the broader term
    scores[1, CATS] = 0.9  # a narrower term
    scores[2, [TEA, COFFEE]] = 0.9, 0.8  # right, then a sibling by a term that is no label
    scores[3, TEA] = 0.9  # wrong
    overall = measure(truth, csr_matrix(scores), [1, 2], broader=BY_HAND)[0]
    assert (overall.at("P", 1), overall.at("P", 2)) == (1 / 4, 1 / 8)
    assert (overall.at("P-near", 1), overall.at("P-near", 2)) == (2 / 4, 3 / 8)
    assert (overall.at("P-sibling", 1), overall.at("P-sibling", 2)) == (3 / 4, 5 / 8)


def test_buckets_count_predicted_labels():
    truth, predicted = csr_matrix(np.eye(5)[[CATS, TEA]]), csr_matrix(np.eye(5)[[DOGS, COFFEE]])
    buckets = FrequencyBuckets.by_frequency(np.array([1, 1, 1, 100, 100]), [10])
    overall, none, rare, frequent = measure(truth, predicted, [1], buckets=buckets, broader=BY_HAND)
    assert [one.at("P-sibling", 1) for one in (overall, none, rare, frequent)] == [1, 0, 0.5, 0.5]


def test_strict_figures_come_first_and_stay_the_same():
    truth, predicted = csr_matrix(np.eye(5)[[CATS, TEA]]), csr_matrix(np.eye(5)[[DOGS, TEA]])
    plain = compare(truth, [("a", predicted)], [1])
    near = compare(truth, [("a", predicted)], [1], broader=BY_HAND)
    assert near.measures == [*plain.measures, "P-near", "P-sibling"]
    flat = near.to_json()["systems"][0]
    assert {key: flat[key] for key in plain.to_json()["systems"][0] if key != "buckets"} == {
        key: value for key, value in plain.to_json()["systems"][0].items() if key != "buckets"
    }
    assert "P-sibling@1" in near.to_text()
    assert "P-near" not in plain.to_text()


@given(seed=st.integers(0, 10_000), labels=st.integers(1, 8), others=st.integers(0, 3), many=st.integers(0, 20))
def test_marks_are_those_of_the_definition(seed, labels, others, many):
    draw = np.random.default_rng(seed)
    pairs = {(int(draw.integers(labels)), int(draw.integers(labels + others))) for _ in range(many)}
    pairs = {(label, term) for label, term in pairs if label != term}
    above = [{term for one, term in pairs if one == label} for label in range(labels)]
    truth = as_truth(csr_matrix(draw.random((6, labels)) < 0.3))
    top = top_labels(csr_matrix((draw.random((6, labels)) < 0.6) * draw.random((6, labels))), 4)
    found = mark_near(truth, top, mark_hits(truth, top), terms(labels, *sorted(pairs), count=labels + others))
    for row in range(6):
        true = set(truth[row].indices.tolist())
        for rank, label in enumerate(top[row].tolist()):
            near = label >= 0 and any(label == t or label in above[t] or t in above[label] for t in true)
            sibling = near or (label >= 0 and any(above[label] & above[t] for t in true))
            assert (bool(found.near[row, rank]), bool(found.sibling[row, rank])) == (near, sibling)


def test_without_a_hierarchy_there_are_none():
    truth = csr_matrix(np.eye(5))
    with pytest.raises(KeyError):
        measure(truth, truth, [1])[0].at("P-near", 1)
