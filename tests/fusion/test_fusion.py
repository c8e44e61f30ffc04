"""Fusion: the fit against scipy, calibration on made-up data, thresholds, and the order of answers."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, random

from tests.fusion.made_up import assert_calibrated, mentions_of
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.fusion import Decision, Fusion, ProbabilityModel, decide
from xmc_tf.fusion.candidates import join_candidates
from xmc_tf.fusion.choice import held_out_folds
from xmc_tf.fusion.logistic import fit_logistic
from xmc_tf.fusion.thresholds import PrecisionCurve, measure_curve
from xmc_tf.fusion.weighted_numbers import NAMES, OF_SHORT_TEXTS, weighted_numbers
from xmc_tf.params import PredictionOptions


def made_up(rows=3000, labels=30, seed=0):
    """Return scores, evidence, and labels that follow a known probability."""
    rng = np.random.default_rng(seed)
    scores = random(rows, labels, 0.3, format="csr", dtype=np.float32, rng=rng)
    evidence = random(rows, labels, 0.1, format="csr", dtype=np.float32, rng=rng)
    raw = 3 * scores.toarray() + 4 * evidence.toarray() - 3
    probability = 1 / (1 + np.exp(-raw))
    truth = csr_matrix((rng.random((rows, labels)) < probability).astype(np.float32))
    return scores, mentions_of(evidence), truth


@pytest.fixture(scope="module")
def fusion():
    scores, evidence, truth = made_up()
    return Fusion.learn(scores, evidence, truth, truth)


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
    for guess in (None, expected + 0.5):
        assert np.allclose(fit_logistic(features, right, start, 2.0, guess), expected, rtol=1e-4, atol=1e-5)


def test_probabilities_are_calibrated_on_other_documents(fusion):
    scores, evidence, truth = made_up(seed=1)
    assert_calibrated(fusion.combine(scores, evidence, 30), truth, (0.0, 0.1, 0.3, 0.6, 1.0), 0.04)


def test_a_required_precision_is_reached_on_other_documents(fusion):
    scores, evidence, truth = made_up(seed=1)
    promise = fusion.curve.for_precision(0.7)
    found = fusion.combine(scores, evidence, 30, promise.threshold)
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    assert -0.01 < np.asarray(truth[rows, found.indices]).mean() - 0.7 < 0.05
    assert 0.7 < promise.precision < 0.75
    assert promise.labels > 1000


def test_answers_are_sorted_and_do_not_depend_on_their_number(fusion):
    scores, evidence, _ = made_up(seed=2)
    many, few = fusion.combine(scores, evidence, 20), fusion.combine(scores, evidence, 3)
    for row in range(50):
        a, b = many.indptr[row], few.indptr[row]
        assert (np.diff(many.data[a : many.indptr[row + 1]]) <= 0).all()
        assert np.array_equal(many.indices[a : a + 3], few.indices[b : b + 3])
        assert np.array_equal(many.data[a : a + 3], few.data[b : b + 3])


def test_blocks_of_documents_give_the_same(fusion, monkeypatch):
    scores, evidence, _ = made_up()
    whole = fusion.combine(scores, evidence, 5)
    monkeypatch.setattr("xmc_tf.fusion.fusion.ROWS", 700)
    assert (whole != fusion.combine(scores, evidence, 5)).nnz == 0


def test_the_union_of_candidates():
    scores = csr_matrix(np.array([[0.5, 0, 0.2], [0, 0, 0]], np.float32))
    evidence = csr_matrix(np.array([[0, 0, 0.4], [0.1, 0, 0]], np.float32))
    found = join_candidates(scores, mentions_of(evidence))
    assert found.rows.tolist() == [0, 0, 1]
    assert found.labels.tolist() == [0, 2, 0]
    assert np.allclose(found.score, [0.5, 0.2, 0])
    assert np.allclose(found.precision, [0, 0.4, 0.1])


def test_rounding_of_a_sure_score_says_nothing_about_a_short_text():
    sure = np.float32([0.9998, 0.5])
    rounded = np.float32([np.nextafter(sure[0], np.float32(1)), 0.5])
    numbers = []
    for scores in (sure, rounded):
        found = join_candidates(csr_matrix(scores[None]), None)._replace(scarcity=np.ones(2))
        numbers.append(weighted_numbers(found, np.ones(2))[1, OF_SHORT_TEXTS])
    assert abs(numbers[1] - numbers[0]).max() < 1e-6


def test_best_f1_and_precision_of_a_curve():
    probability = np.linspace(1, 0, 100_001)
    right = np.random.default_rng(0).random(100_001) < probability
    curve = measure_curve(probability, right, np.arange(len(right)), int(right.sum()))
    assert 0.3 < curve.best_f1 < 0.5
    assert 0.57 < curve.for_precision(0.8).threshold < 0.64


def test_a_promise_that_cannot_be_kept_is_refused():
    rng = np.random.default_rng(0)
    probability = np.sort(rng.random(2000))[::-1]
    curve = measure_curve(probability, rng.random(2000) < 0.6, np.arange(2000) // 4, 1500)
    refused(r"cannot promise a precision of 0.9\b(.|\n)*at most 0.[56]", curve.for_precision, 0.9)
    with pytest.raises(InputError, match="at most 0, according to its held-out documents"):
        PrecisionCurve([0.5], [0.1], [0.1], [0.0004], [100]).for_precision(0.9)
    with pytest.raises(InputError, match="fewer than 30 held-out labels"):
        PrecisionCurve([], [], [], [], []).for_precision(0.2)


def test_labels_of_one_document_count_by_how_much_they_vary_together():
    """The bound is Wilson's, of as many labels as have the variance that whole documents have."""
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 60, 300)
    right = rng.random(300) < np.where(rows % 2, 0.9, 0.4)
    probability = rng.permutation(300) / 300
    curve = measure_curve(probability, right, rows, 300)
    best = np.argsort(-probability)
    for threshold, precision, lower, count in zip(
        curve.thresholds, curve.precision, curve.lower, curve.counts, strict=True
    ):
        some = best[:count]
        assert (probability[some].min(), right[some].mean()) == pytest.approx((threshold, precision), abs=1e-5)
        residuals = np.bincount(rows[some], right[some] - right[some].mean())
        alone = right[some].mean() * (1 - right[some].mean()) / count
        effective = count * min(1.0, alone * count**2 / (residuals**2).sum())
        # The precision at which the measured one is just 1.645 deviations away.
        assert precision - lower == pytest.approx(1.645 * np.sqrt(2 * lower * (1 - lower) / effective), abs=1e-4)


@pytest.mark.parametrize("least", [0.5, 0.7, 0.8])
def test_promises_are_kept_in_most_samples(least):
    """As many new documents keep them. Labels of a document are right together, and labels have few documents."""
    kept, above = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = np.repeat(np.arange(900), 10)

        def sample(rng=rng):
            raw = rng.normal(-0.5, 1.5, 9000)
            easy = np.repeat(rng.normal(0, 1, 900), 10)
            return 1 / (1 + np.exp(-raw)), rng.random(9000) < 1 / (1 + np.exp(-(raw + easy)))

        probability, right = sample()
        promise = measure_curve(probability, right, rows, int(right.sum())).for_precision(least)
        probability, right = sample()
        precision = np.mean(right[probability >= promise.threshold])
        kept.append(precision >= least)
        above.append(precision - least)
    assert np.mean(kept) >= 0.9
    assert np.mean(above) < 0.1  # no more careful than it needs to be


def test_precision_is_measured_with_weights_of_other_documents():
    """On the few documents that 35 weights are fitted to, they look 7 points better than on new ones."""
    gaps = []
    for seed in range(12):
        fusion = Fusion.learn(*made_up(60, seed=seed), made_up(60, seed=seed)[2])
        scores, evidence, truth = made_up(1000, seed=100 + seed)
        found = fusion.combine(scores, evidence, 30)
        right = truth.toarray()[np.repeat(np.arange(1000), np.diff(found.indptr)), found.indices]
        curve = fusion.curve
        gaps += [curve.precision[k] - right[found.data >= curve.thresholds[k]].mean() for k in (0, 60, 120)]
    assert np.mean(gaps) < 0.04


def test_labels_whose_only_document_is_held_out_say_nothing():
    """Without names, they are candidates only because they are right, so a curve with them would be too good."""
    rng = np.random.default_rng(0)
    scores, _, truth = made_up(rows=600, labels=20)
    # Labels of one document each: found there, and in a fifth of all other documents, wrongly.
    alone = csr_matrix((np.ones(600, np.float32), (np.arange(600), np.arange(600))), shape=(600, 600))
    named = alone + random(600, 600, 0.004, format="csr", dtype=np.float32, rng=rng).astype(bool)
    Y = csr_matrix(np.hstack([truth.toarray(), alone.toarray()]))
    found = csr_matrix(np.hstack([scores.toarray(), 0.5 * named.toarray()]).astype(np.float32))
    folds = [np.arange(0, 100), np.arange(100, 200)]
    rows = np.concatenate(folds)
    fusion = Fusion.learn(found[rows], None, Y[rows], Y, fold_sizes=[100, 100])
    frequent = Fusion.learn(scores[rows], None, truth[rows], truth, fold_sizes=[100, 100])
    document, label = named[rows].nonzero()
    from_elsewhere = (document // 100 != label // 100).sum()
    assert fusion.curve.counts[-1] == frequent.curve.counts[-1] + from_elsewhere


def test_labels_that_lose_documents_below_the_minimum_do_not_make_rare_labels_look_good():
    # Labels are equally probable, so their numbers of documents say nothing, but rare ones were dropped.
    rng = np.random.default_rng(0)
    drawn = csr_matrix((rng.random((4000, 400)) < 0.0015).astype(np.float32))
    Y = drawn[:, np.flatnonzero(np.bincount(drawn.indices, minlength=400) >= 3)]
    held_out = csr_matrix(Y[:400])
    scores = csr_matrix(np.clip(0.2 + held_out.toarray() * 0.2 + rng.normal(0, 0.1, held_out.shape), 0.01, 0.99))
    learned = Fusion.learn(scores.astype(np.float32), None, held_out, Y, fold_sizes=[400])
    assert abs(learned.weights[NAMES.index("documents")]) < 0.15


def test_held_out_documents_do_not_repeat():
    for count in (20, 999, 50_000):
        folds = held_out_folds(count, seed=3)
        every = np.concatenate(folds)
        assert len(set(every.tolist())) == len(every) <= count / 2
    assert held_out_folds(19, 0) == []
    assert len(held_out_folds(100_000, 0)) == 1


def test_saved_fusion_is_the_same(fusion, tmp_path):
    fusion.save(tmp_path / "fusion")
    loaded = Fusion.load(tmp_path / "fusion")
    scores, evidence, _ = made_up()
    assert (fusion.combine(scores, evidence, 5) != loaded.combine(scores, evidence, 5)).nnz == 0
    assert loaded.curve == fusion.curve
    header = tmp_path / "fusion" / "fusion.json"
    header.write_text(header.read_text().replace(NAMES[1], "another", 1))
    refused("another version", Fusion.load, tmp_path / "fusion")


def test_what_is_asked_of_a_model_without_probabilities():
    assert decide(PredictionOptions(threshold=0.5), None) == Decision(False, 0.5)
    refused("has no probabilities", decide, PredictionOptions(scores="probability"), None)
    refused("needs probabilities", decide, PredictionOptions(min_precision=0.8), None)


def test_contradicting_requests():
    fusion = ProbabilityModel("a fusion").fusion
    assert decide(PredictionOptions(), fusion) == Decision(True, None)
    assert decide(PredictionOptions(threshold=0.2), fusion) == Decision(True, 0.2)
    assert decide(PredictionOptions(post_processor="sigmoid"), fusion) == Decision(False, None)
    refused("post-processor does not apply", PredictionOptions, scores="probability", post_processor="sigmoid")
    refused("needs probabilities", decide, PredictionOptions(scores="ranker", min_precision=0.8), fusion)
    refused("mutually exclusive", PredictionOptions, threshold=0.5, min_precision=0.8)
    refused("out of range", PredictionOptions, min_precision=1.5)
