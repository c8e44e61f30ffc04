"""``XMCClassifier``: scores, and how many labels are predicted."""

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.metrics import f1_score, label_ranking_average_precision_score
from sklearn.model_selection import cross_val_score

from tests.api.sklearn_data import HELD_OUT, LISTS, TOPICS, X_TEST, X, indicators, small
from xmc_tf.metrics import evaluate
from xmc_tf.sklearn import XMCClassifier


def test_scores_are_sparse_and_of_the_best_labels():
    scores = small(scored_labels=2).fit(X, LISTS).predict_proba(X_TEST)
    assert issparse(scores)
    assert scores.shape == (40, 6)
    assert scores.has_sorted_indices
    assert (np.diff(scores.indptr) == 2).all()
    assert 0 <= scores.data.min() <= scores.data.max() <= 1
    assert evaluate(indicators(HELD_OUT), scores).at("P", 1) == 1


def test_dense_scores_suit_scikit_learn_s_metrics():
    found = small(sparse_output=False).fit(X, indicators(LISTS))
    truth, scores = indicators(HELD_OUT).toarray(), found.predict_proba(X_TEST)
    assert label_ranking_average_precision_score(truth, scores) > 0.95
    assert (scores == found.decision_function(X_TEST)).all()
    assert cross_val_score(found, X, indicators(LISTS).toarray(), cv=2, scoring="roc_auc").min() > 0.9


def test_the_number_of_labels_and_the_threshold():
    found = XMCClassifier(n_jobs=1).fit(X, LISTS)
    assert found.labels_per_document_ == sum(map(len, LISTS)) / 120 == pytest.approx(1.5, abs=0.1)
    average = round(found.labels_per_document_)
    assert {len(names) for names in found.predict(X_TEST)} == {average}
    assert {len(names) for names in found.set_params(max_labels=4).predict(X_TEST)} == {4}
    kept = found.set_params(threshold=0.4).predict(X_TEST)
    best = found.top_k(X_TEST, k=4)
    assert kept == [[name for name, score in names if score >= 0.4] for names in best]
    assert found.set_params(threshold=2.0).predict(X_TEST) == [[]] * 40


def test_score_is_f1_of_the_documents():
    y, y_test = indicators(LISTS), indicators(HELD_OUT).toarray()
    y_test[:5] = 0
    found = XMCClassifier(max_labels=3, threshold=0.9, n_jobs=1).fit(X, y)
    predicted, weights = found.predict(X_TEST).toarray(), np.arange(1, 41)
    expected = f1_score(y_test, predicted, average="samples", zero_division=1)
    assert 0.2 < expected < 1
    assert found.score(X_TEST, y_test) == pytest.approx(expected)
    weighted = f1_score(y_test, predicted, average="samples", zero_division=1, sample_weight=weights)
    assert found.score(X_TEST, y_test, weights) == pytest.approx(weighted)
    names = XMCClassifier(max_labels=3, threshold=0.9, n_jobs=1).fit(X, LISTS)
    named = [[TOPICS[i] for i in np.flatnonzero(row)] for row in y_test]
    assert names.score(X_TEST, named) == pytest.approx(expected)
    # A label that training did not know is one that is missed.
    assert names.score(X_TEST[:1], [["desert"]]) == 0
    assert names.score(X_TEST[6:7], [[*named[6], "desert"]]) < names.score(X_TEST[6:7], named[6:7])
