"""``XMCClassifier`` in scikit-learn's tools and under its checks of estimators; pickles."""

import doctest
import pickle

import pytest
from sklearn.base import is_classifier
from sklearn.exceptions import SkipTestWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from tests.api.sklearn_data import (
    HELD_OUT,
    LISTS,
    ONE,
    TEST_TEXTS,
    TEXTS,
    X,
    indicators,
    small,
)
from xmc_tf.data import TextFile
from xmc_tf.sklearn import XMCClassifier, classifier


def test_it_works_in_a_pipeline_on_texts_and_on_features():
    alone = make_pipeline(small())
    assert alone.fit(TEXTS, LISTS).score(TEST_TEXTS, HELD_OUT) == 1
    behind = make_pipeline(TfidfVectorizer(), small())
    assert behind.fit(TEXTS, LISTS).score(TEST_TEXTS, HELD_OUT) == 1
    assert behind[-1].n_features_in_ == len(behind[0].vocabulary_)


def test_grid_search_chooses_options_of_blocks():
    grid = {"xmcclassifier__tfidf__max_features": [1, 100], "xmcclassifier__threshold": [0.3, 1.0]}
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


def test_a_pickled_linear_model_needs_no_folder(of_texts, tmp_path):
    of_texts.model_.save(tmp_path / "model")
    loaded = pickle.loads(pickle.dumps(of_texts))
    loaded.model_ = type(loaded.model_).load(tmp_path / "model")
    content = pickle.dumps(loaded)
    (tmp_path / "model").rename(tmp_path / "moved")
    for found in (pickle.loads(pickle.dumps(of_texts)), pickle.loads(content)):
        assert found.top_k(TEST_TEXTS) == of_texts.top_k(TEST_TEXTS)


def test_the_example_of_the_class_runs():
    assert doctest.testmod(classifier, raise_on_error=True).attempted > 4


_DENSE_ONLY = "it compares scores as dense arrays; they are sparse by default"
# By the value of sparse_output.
FAIL = {
    True: {
        "check_classifiers_classes": _DENSE_ONLY,
        "check_classifiers_train": _DENSE_ONLY,
        "check_classifiers_multilabel_output_format_predict_proba": _DENSE_ONLY,
        "check_classifiers_multilabel_output_format_decision_function": _DENSE_ONLY,
        "check_decision_proba_consistency": _DENSE_ONLY,
    },
    False: {
        "check_classifiers_multilabel_output_format_predict_proba": "it wants scores below 1; the post-processor "
        "l3-hinge gives 1 to every label beyond its margin",
    },
}
# These skip themselves, the second when it has passed with arrays.
SKIP = {
    "check_array_api_input": "SCIPY_ARRAY_API",
    "check_classifier_data_not_an_array": "pandas",
}


@pytest.mark.parametrize("sparse_output", [True, False])
def test_checks_of_estimators(sparse_output):
    """A check that is expected to fail and passes is a failure too."""
    found = XMCClassifier(sparse_output=sparse_output, n_jobs=1)
    results = check_estimator(found, expected_failed_checks=FAIL[sparse_output], on_skip=None, on_fail=None)
    failed = {f"{one['check_name']}: {one['exception']}" for one in results if one["status"] == "failed"}
    assert not failed
    assert {one["check_name"] for one in results if one["status"] == "xfail"} == set(FAIL[sparse_output])
    for one in results:
        if one["status"] == "skipped":
            assert SKIP[one["check_name"]] in str(one["exception"])
    passed = {one["check_name"] for one in results if one["status"] == "passed"}
    assert not passed & set(FAIL[sparse_output])
    assert len(passed) > 45


def test_a_transformer_reads_no_features_and_is_not_checked():
    with pytest.warns(SkipTestWarning, match="requires input  of type"):
        results = check_estimator(XMCClassifier("transformer"))
    assert [one["check_name"] for one in results] == ["check_estimator_cloneable"]
