"""``XMCClassifier``: documents, labels, scores and parameters."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import coo_matrix, csr_array, csr_matrix, issparse
from sklearn.base import clone
from sklearn.metrics import accuracy_score, f1_score, label_ranking_average_precision_score
from sklearn.model_selection import cross_val_score

from tests.api.sklearn_data import (
    HELD_OUT,
    LISTS,
    ONE,
    TEST_ONE,
    TEST_TEXTS,
    TEXTS,
    TOPICS,
    X_TEST,
    X,
    indicators,
    small,
)
from tests.refusals import refused
from xmc_tf.data import Features
from xmc_tf.metrics import evaluate
from xmc_tf.params import HierarchicalKMeansParams, LinearLevelParams, RankerParams, TfidfParams
from xmc_tf.sklearn import XMCClassifier


def test_lists_of_names_come_back_as_lists_best_first(of_texts):
    predicted = of_texts.predict(TEST_TEXTS)
    assert [sorted(names) for names in predicted] == HELD_OUT
    assert of_texts.classes_.tolist() == TOPICS
    for names, best in zip(predicted, of_texts.top_k(TEST_TEXTS, k=3), strict=True):
        assert [name for name, _ in best][: len(names)] == names
        assert len(best) == 3
        assert [score for _, score in best] == sorted((score for _, score in best), reverse=True)


def test_integers_are_names_too():
    y = [[10 * TOPICS.index(name) for name in names] for names in LISTS]
    found = small().fit(X, y)
    assert found.classes_.tolist() == [0, 10, 20, 30, 40, 50]
    assert found.predict(X_TEST) == [
        [10 * TOPICS.index(name) for name in names] for names in small().fit(X, LISTS).predict(X_TEST)
    ]
    assert all(type(label) is int for labels in found.predict(X_TEST) for label in labels)


@pytest.mark.parametrize("kind", [csr_array, coo_matrix, np.asarray, np.ndarray.tolist])
def test_an_indicator_matrix_comes_back_as_one(kind):
    dense = indicators(LISTS).toarray()
    found = small().fit(X, kind(dense))
    predicted = found.predict(X_TEST)
    assert issparse(predicted) == issparse(kind(dense))
    predicted = predicted.toarray() if issparse(predicted) else predicted
    assert predicted.dtype == dense.dtype
    assert (predicted == indicators(HELD_OUT).toarray()).all()
    assert found.classes_.tolist() == list(range(6))
    assert found.model_.names is None
    assert found.score(X_TEST, kind(indicators(HELD_OUT).toarray())) == 1


def test_two_columns_of_a_list_are_indicators_if_a_row_repeats_a_number():
    both = small().fit(X, [[int("forest" in names), int("garden" in names)] for names in LISTS])
    assert both.predict(X_TEST).tolist() == [[int("forest" in names), int("garden" in names)] for names in HELD_OUT]
    assert small().fit(X, [[i % 2, 1 - i % 2] for i in range(120)]).predict(X_TEST[:1])[0] in ([0, 1], [1, 0], [0], [1])


def test_entries_of_a_sparse_matrix_are_labels_whatever_their_value():
    weights = indicators(LISTS).astype(np.float32)
    weights.data[:] = np.random.default_rng(0).random(weights.nnz) + 0.1
    weights[0, 3] = 0  # stored or not, it is no label
    expected = small().fit(X, (weights > 0).astype(np.float32)).decision_function(X_TEST)
    assert (small().fit(X, weights).decision_function(X_TEST) != expected).nnz == 0


@pytest.mark.parametrize("y", [ONE, np.array(ONE), pd.Series(ONE), pl.Series(ONE)])
def test_one_name_per_document(y):
    found = small().fit(X, y)
    predicted = found.predict(X_TEST)
    assert predicted.shape == (40,)
    assert found.score(X_TEST, TEST_ONE) == accuracy_score(TEST_ONE, predicted) > 0.8
    shares = found.predict_proba(X_TEST)
    assert np.allclose(shares.sum(axis=1), 1)
    assert (found.classes_[np.asarray(shares.argmax(axis=1)).ravel()] == predicted).all()


def test_two_classes_have_one_decision_per_document():
    y = np.array(["forest" in names for names in LISTS])
    found = small().fit(X, y)
    decision = found.decision_function(X_TEST)
    assert decision.shape == (40,)
    assert ((decision > 0) == found.predict(X_TEST)).all()
    assert found.predict_proba(X_TEST).shape == (40, 2)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        ([["a"], "b"], "y: document 1 has no list of labels"),
        ([["a"], [3]], "received: int, str"),
        (["a", 0.5], "received: float, str"),
        ([[], []], "y contains no label"),
        (np.zeros((2, 3)), "y contains no label"),
        (np.array([[0, 2], [1, 0]]), "values other than 0 and 1(.|\n)*received: 2"),
        (np.array([[0, np.nan], [1, 0]]), "contains NaN"),
        (np.array([0.5, 1.25]), "Unknown label type"),
        (["a", "b", "c"], "as many documents in y as in X, 2"),
    ],
)
def test_labels_that_cannot_be_used(y, message):
    with pytest.raises(ValueError, match=message):
        small().fit(X[:2], y)


def test_features_in_any_form_give_the_same():
    expected = small().fit(X, LISTS).decision_function(X_TEST)
    for form in (csr_matrix, csr_array, coo_matrix, np.ndarray.tolist, lambda given: Features(dense=given)):
        found = small().fit(form(X), LISTS)
        assert found.n_features_in_ == X.shape[1]
        assert np.allclose(found.decision_function(form(X_TEST)).toarray(), expected.toarray(), atol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a text", 3.5], "X: document 1 is not a text"),
        (np.array([["a", "b"]]), "a table of texts"),
        (X[:, :3], "X contains features(.|\n)*texts, as in fit"),
    ],
)
def test_documents_that_cannot_be_used(of_texts, given, message):
    refused(message, of_texts.predict, given)


def test_other_documents_than_in_fit_are_refused(of_texts):
    found = small().fit(X, LISTS)
    refused("X contains texts", found.predict, TEST_TEXTS)
    with pytest.raises(ValueError, match="X has 3 features"):
        found.predict(Features(dense=X_TEST[:, :3].copy()))
    assert not hasattr(found.fit(TEXTS, LISTS), "n_features_in_")


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


def test_options_of_blocks_have_names_of_their_own():
    found = XMCClassifier(tfidf=TfidfParams(min_df=3))
    params = found.get_params()
    assert params["tfidf__min_df"] == 3
    assert params["tree__nr_splits"] == 16
    assert params["ranker__Cp"] == 1
    assert params["matcher__batch_size"] == 32
    assert all("__" not in name for name in found.get_params(deep=False))
    found.set_params(tfidf__ngram_max=3, ranker__Cp=2.0, max_labels=7)
    assert found.tfidf == TfidfParams(min_df=3, ngram_max=3)
    assert found.ranker == LinearLevelParams(Cp=2.0)
    assert (found.max_labels, found.tree) == (7, None)
    assert clone(found).get_params() == found.get_params()
    refused("tfidf__ngrams is not a parameter", found.set_params, tfidf__ngrams=3)
    refused("ngram_max", found.set_params, tfidf__ngram_max=0)
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        found.set_params(depth=3)


def test_options_reach_the_model():
    tree = HierarchicalKMeansParams(nr_splits=2, max_leaf_size=2)
    found = small(tree=tree, ranker=LinearLevelParams(bias=0.0), random_state=3).fit(X, LISTS)
    assert found.model_.tree.depth > small().fit(X, LISTS).model_.tree.depth
    assert {level.bias for level in found.model_.ranker.levels} == {0}
    whole = small(tree=tree, ranker=RankerParams(min_codes=2)).fit(X, LISTS)
    assert {level.bias for level in whole.model_.ranker.levels} == {1}
    few = small(tfidf=TfidfParams(ngram_max=1, max_features=10, pieces=0)).fit(TEXTS, LISTS)
    assert few.model_.tfidf.nr_features == 10


def test_the_seed_is_a_number_or_drawn():
    def trained(state):
        return small(tree=HierarchicalKMeansParams(nr_splits=2, max_leaf_size=1), random_state=state).fit(X, LISTS)

    assert trained(5).model_.tree == trained(5).model_.tree
    drawn = [trained(np.random.RandomState(1)).model_ for _ in range(2)]
    assert drawn[0].tree == drawn[1].tree
    assert trained(None).score(X_TEST, HELD_OUT) > 0.8
    with pytest.raises(ValueError, match="Seed must be between"):
        trained(-1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"model": "tree"}, 'model is unknown(.|\n)*"linear" or "transformer"'),
        ({"max_labels": 0}, "max_labels is out of range"),
        ({"scored_labels": None}, "scored_labels is out of range"),
        ({"beam_size": 2.5}, "beam_size is out of range"),
        *(({"threshold": value}, "threshold is out of range") for value in (None, 5, float("nan"), True)),
        ({"tfidf": {"ngram_max": 2}}, "tfidf has the wrong type(.|\n)*TfidfParams, or None"),
        ({"ranker": TfidfParams()}, "LinearLevelParams or RankerParams, or None"),
        ({"model": "transformer"}, "needs texts"),
    ],
)
def test_parameters_that_cannot_be_used(params, message):
    refused(message, XMCClassifier(**params).fit, X, LISTS)
