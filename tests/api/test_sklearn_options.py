"""``XMCClassifier``: its parameters."""

import numpy as np
import pytest
from sklearn.base import clone

from tests.api.sklearn_data import HELD_OUT, LISTS, TEXTS, X_TEST, X, small
from xmc_tf.common.errors import InputError
from xmc_tf.params import HierarchicalKMeansParams, LinearLevelParams, RankerParams, TfidfParams
from xmc_tf.sklearn import XMCClassifier


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
    with pytest.raises(InputError, match=message):
        XMCClassifier(**params).fit(X, LISTS)
