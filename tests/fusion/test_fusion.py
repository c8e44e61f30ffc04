"""Fusion: the fit against scipy, calibration on made-up data, thresholds, and the order of answers."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, random

from xmc_tf.common.errors import InputError
from xmc_tf.fusion import Evidence, Fusion, check_scores, chosen_threshold
from xmc_tf.fusion.candidates import join_candidates
from xmc_tf.fusion.features import NAMES
from xmc_tf.fusion.held_out import held_out_folds
from xmc_tf.fusion.logistic import fit_logistic
from xmc_tf.fusion.thresholds import Curve, measure_curve


def made_up(rows=3000, labels=30, seed=0):
    """Return scores, evidence, and labels that follow a known probability."""
    rng = np.random.default_rng(seed)
    scores = random(rows, labels, 0.3, format="csr", dtype=np.float32, rng=rng)
    evidence = random(rows, labels, 0.1, format="csr", dtype=np.float32, rng=rng)
    raw = 3 * scores.toarray() + 4 * evidence.toarray() - 3
    probability = 1 / (1 + np.exp(-raw))
    return scores, evidence, csr_matrix((rng.random((rows, labels)) < probability).astype(np.float32))


def test_the_fit_is_the_minimum_that_scipy_finds():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(500, 4)) * [1, 10, 0.1, 1]
    right = rng.random(500) < 1 / (1 + np.exp(-features @ [1, -0.2, 3, 0.5]))
    start = np.array([0.5, 0.0, 0.0, 0.0])
    scale = (features**2).mean(axis=0)

    def loss(weights):
        raw = features @ weights
        return np.logaddexp(0, np.where(right, -raw, raw)).sum() + 2 * (scale * (weights - start) ** 2).sum() / 2

    expected = minimize(loss, start, method="BFGS", options={"gtol": 1e-8}).x
    assert np.allclose(fit_logistic(features, right, start, penalty=2.0), expected, rtol=1e-4, atol=1e-5)


def test_without_examples_the_weights_stay():
    start = np.arange(3.0)
    assert np.array_equal(fit_logistic(np.zeros((0, 3)), np.zeros(0, bool), start), start)


def test_probabilities_are_calibrated_on_other_documents():
    fusion = Fusion.learn(*made_up(), made_up()[2])
    scores, evidence, truth = made_up(seed=1)
    found = fusion.combine(scores, evidence, 30)
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    right = np.asarray(truth[rows, found.indices]).ravel()
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1.0)):
        some = (found.data >= low) & (found.data < high)
        assert abs(found.data[some].mean() - right[some].mean()) < 0.04, (low, high)


def test_a_required_precision_is_reached_on_other_documents():
    fusion = Fusion.learn(*made_up(), made_up()[2])
    scores, evidence, truth = made_up(seed=1)
    found = fusion.combine(scores, evidence, 30, fusion.curve.for_precision(0.7))
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    assert abs(np.asarray(truth[rows, found.indices]).mean() - 0.7) < 0.03


def test_answers_are_sorted_and_do_not_depend_on_their_number():
    fusion = Fusion.learn(*made_up(), made_up()[2])
    scores, evidence, _ = made_up(seed=2)
    many, few = fusion.combine(scores, evidence, 20), fusion.combine(scores, evidence, 3)
    for row in range(50):
        a, b = many.indptr[row], few.indptr[row]
        assert (np.diff(many.data[a : many.indptr[row + 1]]) <= 0).all()
        assert np.array_equal(many.indices[a : a + 3], few.indices[b : b + 3])
        assert np.array_equal(many.data[a : a + 3], few.data[b : b + 3])


def test_blocks_of_documents_give_the_same(monkeypatch):
    fusion = Fusion.learn(*made_up(), made_up()[2])
    scores, evidence, _ = made_up()
    whole = fusion.combine(scores, evidence, 5)
    monkeypatch.setattr("xmc_tf.fusion.fusion._ROWS", 700)
    assert (whole != fusion.combine(scores, evidence, 5)).nnz == 0


def test_the_union_of_candidates():
    scores = csr_matrix(np.array([[0.5, 0, 0.2], [0, 0, 0]], np.float32))
    evidence = csr_matrix(np.array([[0, 0, 0.4], [0.1, 0, 0]], np.float32))
    found = join_candidates(scores, evidence)
    assert found.rows.tolist() == [0, 0, 1]
    assert found.labels.tolist() == [0, 2, 0]
    assert np.allclose(found.score, [0.5, 0.2, 0])
    assert np.allclose(found.worth, [0, 0.4, 0.1])


def test_best_f1_and_precision_of_a_curve():
    probability = np.linspace(1, 0, 100_001)
    right = np.random.default_rng(0).random(100_001) < probability
    curve = measure_curve(probability, right, int(right.sum()))
    assert 0.3 < curve.best_f1 < 0.5
    assert 0.57 < curve.for_precision(0.8) < 0.63
    assert Curve([], [], []).for_precision(0.9) == 0.9


def test_held_out_documents_do_not_repeat():
    for count in (20, 999, 50_000):
        folds = held_out_folds(count, seed=3)
        every = np.concatenate(folds)
        assert len(set(every.tolist())) == len(every) <= count / 2
    assert held_out_folds(19, 0) == []
    assert len(held_out_folds(100_000, 0)) == 1


def test_saved_fusion_is_the_same(tmp_path):
    fusion = Fusion.learn(*made_up(), made_up()[2])
    fusion.save(tmp_path / "fusion")
    loaded = Fusion.load(tmp_path / "fusion")
    scores, evidence, _ = made_up()
    assert (fusion.combine(scores, evidence, 5) != loaded.combine(scores, evidence, 5)).nnz == 0
    assert loaded.curve == fusion.curve
    header = tmp_path / "fusion" / "fusion.json"
    header.write_text(header.read_text().replace(NAMES[1], "another", 1))
    with pytest.raises(InputError, match="another version"):
        Fusion.load(tmp_path / "fusion")


def test_what_is_asked_of_a_model_without_probabilities():
    assert check_scores(None, None, None) == "ranker"
    with pytest.raises(InputError, match="no probabilities"):
        check_scores("probability", None, None)
    with pytest.raises(InputError, match="no probabilities"):
        chosen_threshold(None, None, 0.8)


def test_contradicting_requests():
    evidence = Evidence(None, None)
    assert check_scores(None, evidence, "sigmoid") == "ranker"
    with pytest.raises(InputError, match="no post-processor"):
        check_scores("probability", evidence, "sigmoid")
    with pytest.raises(InputError, match="exclude each other"):
        chosen_threshold(evidence, 0.5, 0.8)
    with pytest.raises(InputError, match="out of range"):
        chosen_threshold(evidence, None, 1.5)
