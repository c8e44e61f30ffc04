"""``XMCClassifier``: labels and documents in every form, scikit-learn's tools, pickles."""

import doctest
import gc
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_array, csr_matrix, issparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score, f1_score, label_ranking_average_precision_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

from tests.api.sklearn_data import TOPICS, Series, Table, features, indicators, texts_of, topics
from tests.pipeline.corpus import write_encoder
from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, TextFile
from xmc_tf.metrics import evaluate
from xmc_tf.params import HierarchicalKMeansParams, LinearLevelParams, MatcherParams, RankerParams, TfidfParams
from xmc_tf.sklearn import XMCClassifier, classifier

ROOT = Path(__file__).resolve().parents[2]
LISTS, HELD_OUT = topics(120), topics(40, seed=1)
TEXTS, TEST_TEXTS = texts_of(LISTS), texts_of(HELD_OUT, seed=1)
X, X_TEST = features(LISTS), features(HELD_OUT, seed=1)
ONE, TEST_ONE = [names[0] for names in LISTS], [names[0] for names in HELD_OUT]


def small(**params):
    """A classifier that keeps the predicted labels whose score is high."""
    return XMCClassifier(max_labels=3, threshold=0.3, n_jobs=1, **params)


@pytest.fixture(scope="module")
def of_texts():
    """Fitted to texts and lists of names."""
    return small().fit(TEXTS, LISTS)


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    """Fine-tuned on the texts from a tiny encoder."""
    encoder = tmp_path_factory.mktemp("sklearn") / "encoder"
    write_encoder(encoder)
    matcher = MatcherParams(max_steps=4, batch_size=16, learning_rate=0.01)
    return small(
        model="transformer", encoder=str(encoder), matcher=matcher, max_tokens=16, ranker=LinearLevelParams(threshold=0)
    ).fit(TEXTS, LISTS)


# Labels


def test_lists_of_names_come_back_as_lists_best_first(of_texts):
    predicted = of_texts.predict(TEST_TEXTS)
    assert [sorted(names) for names in predicted] == HELD_OUT
    assert of_texts.classes_.tolist() == TOPICS
    for names, best in zip(predicted, of_texts.top_k(TEST_TEXTS, k=3), strict=True):
        assert [name for name, _ in best][: len(names)] == names
        assert len(best) == 3
        assert [score for _, score in best] == sorted((score for _, score in best), reverse=True)


@pytest.mark.parametrize(
    "y",
    [
        [set(names) for names in LISTS],
        [tuple(names) for names in LISTS],
        [names + names for names in LISTS],
        Series(LISTS),
    ],
    ids=["sets", "tuples", "doubles", "series"],
)
def test_other_lists_of_names_train_the_same_model(y):
    expected = small().fit(X, LISTS)
    found = small().fit(X, y)
    assert found.predict(X_TEST) == expected.predict(X_TEST)
    assert (found.decision_function(X_TEST) != expected.decision_function(X_TEST)).nnz == 0


def test_integers_are_names_too():
    y = [[10 * TOPICS.index(name) for name in names] for names in LISTS]
    found = small().fit(X, y)
    assert found.classes_.tolist() == [0, 10, 20, 30, 40, 50]
    assert found.predict(X_TEST) == [
        [10 * TOPICS.index(name) for name in names] for names in small().fit(X, LISTS).predict(X_TEST)
    ]
    assert all(type(label) is int for labels in found.predict(X_TEST) for label in labels)


@pytest.mark.parametrize("kind", [csr_matrix, csr_array, coo_matrix, np.asarray, np.ndarray.tolist])
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


def test_columns_of_a_table_are_the_names():
    found = small().fit(X, Table(indicators(LISTS).toarray().astype(object), TOPICS))
    assert found.classes_.tolist() == TOPICS == found.model_.names
    assert {name for names in found.top_k(X_TEST, k=2) for name, _ in names} <= set(TOPICS)
    assert found.predict(X_TEST).shape == (40, 6)


@pytest.mark.parametrize("y", [ONE, np.array(ONE), np.array(ONE, dtype=object), Series(ONE)])
def test_one_name_per_document(y):
    found = small().fit(X, y)
    predicted = found.predict(X_TEST)
    assert predicted.shape == (40,)
    assert found.score(X_TEST, TEST_ONE) == accuracy_score(TEST_ONE, predicted) > 0.8
    shares = found.predict_proba(X_TEST)
    assert np.allclose(shares.sum(axis=1), 1)
    assert (found.classes_[np.asarray(shares.argmax(axis=1)).ravel()] == predicted).all()


def test_one_integer_per_document_and_a_column_of_them():
    numbers = np.array([TOPICS.index(name) for name in ONE])
    expected = small().fit(X, numbers).predict(X_TEST)
    assert expected.dtype == numbers.dtype
    with pytest.warns(DataConversionWarning, match="column-vector"):
        found = small().fit(X, numbers[:, None])
    assert (found.predict(X_TEST) == expected).all()


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
        ([["a"], None], "document 1 has no list of labels(.|\n)*received: None"),
        ([["a"], "b"], "document 1 has no list"),
        ([["a"], [3]], "received: int, str"),
        (["a", None], "received: NoneType, str"),
        (["a", float("nan")], "received: float, str"),
        ([[], []], "y contains no label"),
        (np.zeros((2, 3)), "y contains no label"),
        (np.array([[0, 2], [1, 0]]), "not of indicators(.|\n)*received: 2"),
        (np.array([[0, np.nan], [1, 0]]), "contains NaN"),
        (np.array([0.5, 1.25]), "Unknown label type"),
        (["a", "b", "c"], "as many documents in y as in X, 2"),
    ],
)
def test_labels_that_cannot_be_used(y, message):
    with pytest.raises(ValueError, match=message):
        small().fit(X[:2], y)


# Documents


def test_texts_in_any_form_give_the_same(of_texts, tmp_path):
    path = tmp_path / "X.txt"
    path.write_text("".join(f"{text}\n" for text in TEST_TEXTS))
    expected = of_texts.decision_function(TEST_TEXTS)
    forms = [tuple(TEST_TEXTS), np.array(TEST_TEXTS), np.array(TEST_TEXTS, dtype=object), Series(TEST_TEXTS)]
    for form in [*forms, TextFile(path), [text.encode() for text in TEST_TEXTS]]:
        assert (of_texts.decision_function(form) != expected).nnz == 0
    assert not hasattr(of_texts, "n_features_in_")


def test_a_file_of_texts_is_trained_on(of_texts, tmp_path):
    path = tmp_path / "X.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    found = small().fit(TextFile(path), LISTS)
    assert (found.decision_function(TEST_TEXTS) != of_texts.decision_function(TEST_TEXTS)).nnz == 0


def test_features_in_any_form_give_the_same():
    expected = small().fit(X, LISTS).decision_function(X_TEST)
    for form in (csr_matrix, csr_array, coo_matrix, np.ndarray.tolist, lambda given: Features(dense=given)):
        found = small().fit(form(X), LISTS)
        assert found.n_features_in_ == X.shape[1]
        assert np.allclose(found.decision_function(form(X_TEST)).toarray(), expected.toarray(), atol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a text", "X is a single text"),
        (["a text", None], 'document 1 is missing(.|\n)*X.fillna\\(""\\)'),
        (["a text", 3.5], "document 1 is not a text"),
        ([None, "a text"], "document 0 is missing"),
        (Series(["a text", np.nan]), "document 1 is missing"),
        (np.array([["a", "b"]]), "a table of texts"),
        (X[:, :3], "X contains features(.|\n)*texts, as in fit"),
    ],
)
def test_documents_that_cannot_be_used(of_texts, given, message):
    with pytest.raises(InputError, match=message):
        of_texts.predict(given)


def test_other_documents_than_in_fit_are_refused(of_texts):
    found = small().fit(X, LISTS)
    with pytest.raises(InputError, match="X contains texts"):
        found.predict(TEST_TEXTS)
    with pytest.raises(ValueError, match="X has 3 features, but XMCClassifier is expecting 10 features"):
        found.predict(X_TEST[:, :3])
    with pytest.raises(ValueError, match="X has 3 features"):
        found.predict(Features(dense=X_TEST[:, :3].copy()))
    assert not hasattr(found.fit(TEXTS, LISTS), "n_features_in_")
    with pytest.raises(NotFittedError):
        small().predict(TEXTS)


# Scores


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


# Parameters


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
    with pytest.raises(InputError, match="tfidf__ngrams is not a parameter"):
        found.set_params(tfidf__ngrams=3)
    with pytest.raises(InputError, match="ngram_max"):
        found.set_params(tfidf__ngram_max=0)
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        found.set_params(depth=3)


def test_options_reach_the_model():
    tree = HierarchicalKMeansParams(nr_splits=2, max_leaf_size=2)
    found = small(tree=tree, ranker=LinearLevelParams(bias=0.0), random_state=3).fit(X, LISTS)
    assert found.model_.tree.depth > small().fit(X, LISTS).model_.tree.depth
    assert {level.bias for level in found.model_.ranker.levels} == {0}
    whole = small(tree=tree, ranker=RankerParams(min_codes=2)).fit(X, LISTS)
    assert {level.bias for level in whole.model_.ranker.levels} == {1}
    few = small(tfidf=TfidfParams(ngram_max=1, max_features=10)).fit(TEXTS, LISTS)
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
        ({"threshold": None}, "threshold is not a number"),
        ({"tfidf": {"ngram_max": 2}}, "tfidf has the wrong type(.|\n)*TfidfParams, or None"),
        ({"ranker": TfidfParams()}, "LinearLevelParams or RankerParams, or None"),
        ({"model": "transformer"}, "needs texts"),
    ],
)
def test_parameters_that_cannot_be_used(params, message):
    with pytest.raises(InputError, match=message):
        XMCClassifier(**params).fit(X, LISTS)


# scikit-learn's tools


def test_it_works_in_a_pipeline_on_texts_and_on_features():
    alone = make_pipeline(small())
    assert alone.fit(TEXTS, LISTS).score(TEST_TEXTS, HELD_OUT) == 1
    behind = make_pipeline(TfidfVectorizer(), small())
    assert behind.fit(TEXTS, LISTS).score(TEST_TEXTS, HELD_OUT) == 1
    assert behind[-1].n_features_in_ == len(behind[0].vocabulary_)


def test_grid_search_chooses_options_of_blocks():
    grid = {"xmcclassifier__tfidf__max_features": [1, 100], "xmcclassifier__threshold": [0.3, 1.1]}
    search = GridSearchCV(make_pipeline(small()), grid, cv=2).fit(TEXTS, indicators(LISTS))
    assert search.best_params_ == {"xmcclassifier__tfidf__max_features": 100, "xmcclassifier__threshold": 0.3}
    assert search.score(TEST_TEXTS, indicators(HELD_OUT)) == 1


@pytest.mark.parametrize(
    ("y", "cv"),
    [(LISTS, KFold(3)), ([set(names) for names in LISTS], 3), (indicators(LISTS).toarray(), 3), (ONE, 3)],
    ids=["lists", "sets", "dense", "one"],
)
def test_cross_validation_takes_labels_of_all_forms(y, cv):
    assert cross_val_score(small(), X, y, cv=cv, error_score="raise").min() > 0.8


def test_lists_of_names_with_an_integer_cv_are_refused_by_scikit_learn():
    """The reason for the advice in the class's documentation."""
    with pytest.raises(ValueError, match="legacy multi-label data representation"):
        cross_val_score(small(), X, LISTS, cv=3)


def test_a_file_of_texts_in_cross_validation(tmp_path):
    path = tmp_path / "X.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    assert cross_val_score(small(), TextFile(path), LISTS, cv=KFold(2), error_score="raise").min() > 0.9


def test_tags_say_what_it_takes():
    assert is_classifier(XMCClassifier())
    tags = get_tags(XMCClassifier())
    assert tags.classifier_tags.multi_label
    assert tags.input_tags.string
    assert tags.input_tags.sparse
    assert tags.input_tags.two_d_array
    assert not get_tags(XMCClassifier("transformer")).input_tags.two_d_array


# The transformer, pickles, imports


def test_a_transformer_is_fitted_and_answers(transformer):
    assert transformer.score(TEST_TEXTS, HELD_OUT) > 0.8
    assert transformer.predict_proba(TEST_TEXTS).shape == (40, 6)
    assert transformer.model_.metadata.pred_params["matcher_params_chain"]["truncate_length"] == 16
    assert "head" in transformer.model_.parts
    with pytest.raises(InputError, match="X contains features"):
        transformer.predict(X_TEST)


def test_a_transformer_without_fine_tuning(transformer):
    found = clone(transformer).set_params(fine_tune=False).fit(TEXTS, LISTS)
    assert "head" not in found.model_.parts
    assert found.score(TEST_TEXTS, HELD_OUT) > 0.8


def test_a_pickled_transformer_needs_no_folder(transformer):
    copy = pickle.loads(pickle.dumps(transformer))
    content, folder = pickle.dumps(copy), copy.model_.folder
    assert folder.is_dir()
    del copy
    gc.collect()
    assert not folder.exists()
    again = pickle.loads(content)
    assert again.top_k(TEST_TEXTS) == transformer.top_k(TEST_TEXTS)
    assert again.get_params() == transformer.get_params()


def test_a_pickled_linear_model_needs_no_folder(of_texts, tmp_path):
    of_texts.model_.save(tmp_path / "model")
    loaded = pickle.loads(pickle.dumps(of_texts))
    loaded.model_ = type(loaded.model_).load(tmp_path / "model")
    content = pickle.dumps(loaded)
    (tmp_path / "model").rename(tmp_path / "moved")
    for found in (pickle.loads(pickle.dumps(of_texts)), pickle.loads(content)):
        assert found.top_k(TEST_TEXTS) == of_texts.top_k(TEST_TEXTS)


def test_an_unfitted_classifier_is_pickled():
    found = pickle.loads(pickle.dumps(small(tfidf=TfidfParams(ngram_max=1))))
    assert found.get_params() == small(tfidf=TfidfParams(ngram_max=1)).get_params()


def test_the_example_of_the_class_runs():
    assert doctest.testmod(classifier, raise_on_error=True).attempted > 4


@pytest.mark.parametrize(
    "code",
    [
        "from xmc_tf.sklearn import XMCClassifier\n"
        "found = XMCClassifier().fit([[0.0, 1.0], [1.0, 0.0]] * 4, ['a', 'b'] * 4)\n"
        "assert found.predict([[1.0, 0.0]])[0] == 'b'\n"
        "assert not {'tensorflow', 'tf_keras', 'transformers'} & set(sys.modules)\n",
        "sys.modules['sklearn'] = None\n"
        "from xmc_tf import InputError\n"
        "try:\n    import xmc_tf.sklearn\n"
        "except InputError as error:\n    assert error.fix == \"pip install 'xmc_tf[sklearn]'\"\n"
        "else:\n    raise SystemExit('imported')\n",
    ],
    ids=["without TensorFlow", "without scikit-learn"],
)
def test_import(code):
    command = [sys.executable, "-c", f"import sys\n{code}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
