"""``XMCClassifier``: labels in every form."""

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_array, issparse
from sklearn.metrics import accuracy_score

from tests.api.sklearn_data import (
    HELD_OUT,
    LISTS,
    ONE,
    TEST_ONE,
    TEST_TEXTS,
    TOPICS,
    X_TEST,
    Series,
    X,
    indicators,
    small,
)


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


@pytest.mark.parametrize("y", [ONE, np.array(ONE), Series(ONE)])
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
