"""``XMCClassifier`` in scikit-learn's tools; pickles and imports."""

import doctest
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.base import is_classifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

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

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize(
    "code",
    [
        "from xmc_tf.sklearn import XMCClassifier\n"
        "found = XMCClassifier().fit([[0.0, 1.0], [1.0, 0.0]] * 4, ['a', 'b'] * 4)\n"
        "assert found.predict([[1.0, 0.0]])[0] == 'b'\n"
        "assert not {'tensorflow', 'tf_keras', 'transformers'} & set(sys.modules)\n",
        "sys.modules['sklearn'] = None\n"
        "from xmc_tf import InputError\n"
        "from xmc_tf.common.process.extras import pip_install\n"
        "try:\n    import xmc_tf.sklearn\n"
        "except InputError as error:\n    assert error.fix == pip_install('sklearn')\n"
        "else:\n    raise SystemExit('imported')\n",
    ],
    ids=["without TensorFlow", "without scikit-learn"],
)
def test_import(code):
    command = [sys.executable, "-c", f"import sys\n{code}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
