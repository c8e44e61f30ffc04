"""Matcher and ranker: the full model cut in two."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csc_matrix

from tests.linear.cases import features, label_matrix, random_chain, ranker_params
from tests.linear.searching import rows_of
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import RankerParams, XRLinearParams
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.rankers.problems import trained_levels, whole_chain
from xmc_tf.tree import LabelTree

CHAIN = random_chain(40, [3, 12])
X, Y = features("both", 50), label_matrix(50, 40)


def trained(mode="full-model", level=1, schemes="tfn", chain=CHAIN, **options):
    params = ranker_params(schemes, mode=mode, ranker_level=level, rel_mode="induce", rel_norm="l1")
    return train_rankers(X, Y, chain, params=params, threads=1, **options)


def assert_same_levels(ours, expected):
    assert len(ours) == len(expected)
    for level, other in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(level.weights.toarray(), other.weights.toarray())
        np.testing.assert_array_equal(level.clusters.toarray(), other.clusters.toarray())


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("schemes", ["tfn", "usn+tfn"])
def test_matcher_and_ranker_are_the_two_parts_of_the_full_model(level, schemes):
    user = {0: (label_matrix(50, 40, seed=9)), 1: label_matrix(50, 12, seed=8)}
    full = trained(schemes=schemes, user_negatives=user)
    matcher = trained("matcher", level, schemes, user_negatives=user)
    ranker = trained("ranker", level, schemes, user_negatives=user)
    assert_same_levels([*matcher.levels, *ranker.levels], full.levels)
    assert (matcher.nr_labels, ranker.nr_labels) == (CHAIN[-level].shape[1], 40)


def test_one_after_the_other_they_predict_what_the_full_model_predicts():
    matched = trained("matcher").predict(X, beam_size=4, only_topk=4)
    ours = trained("ranker").predict(X, codes=matched, only_topk=7)
    assert rows_of(ours) == rows_of(trained().predict(X, beam_size=4, only_topk=7))


def test_a_rankers_first_level_has_no_predictions_to_learn_from():
    """So "man" adds no negatives there."""
    assert_same_levels(trained("ranker", 1, "tfn+man").levels, trained("ranker", 1, "tfn").levels)


def test_a_ranker_of_the_whole_tree_is_the_full_model():
    assert_same_levels(trained("ranker", 3).levels, trained().levels)


@pytest.mark.parametrize(
    ("mode", "level", "chain", "words"),
    [
        ("matcher", 3, CHAIN, ["no matcher with ranker_level 3", "from 1 to 2, for 3 levels"]),
        ("ranker", 4, CHAIN, ["no ranker with ranker_level 4", "from 1 to 3"]),
        ("matcher", 1, None, ["a tree of two levels or more"]),
    ],
)
def test_cuts_that_the_tree_does_not_have(mode, level, chain, words):
    refused(words, trained, mode, level, chain=chain)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"nr_splits": 4}, [1, 3, 12, 40]),
        ({"nr_splits": 2, "min_codes": 5}, [1, 3, 6, 12, 40]),
        ({"nr_splits": 16}, [1, 12, 40]),
        ({"nr_splits": 2, "shallow": True}, [1, 12, 40]),
    ],
)
def test_levels_above_a_tree_that_has_no_root(options, sizes):
    chain = whole_chain(CHAIN[-1:], 40, RankerParams(**options))
    assert [1, *(clusters.shape[0] for clusters in chain)] == sizes
    for above, clusters in pairwise(chain):
        assert above.shape[0] == clusters.shape[1]
    neighbours = chain[-2].toarray().argmax(1)
    assert np.array_equal(neighbours, np.sort(neighbours))
    np.testing.assert_array_equal(chain[-1].toarray(), CHAIN[-1].toarray())
    LabelTree.from_chain(chain)  # it is one


def test_a_whole_tree_is_left_as_it_is():
    assert trained_levels(RankerParams(ranker_level=5), 3) == slice(0, 3)
    chain = whole_chain(CHAIN, 40, RankerParams(nr_splits=2))
    assert [clusters.shape for clusters in chain] == [clusters.shape for clusters in CHAIN]
    (flat,) = whole_chain(None, 7, RankerParams())
    assert flat.toarray().tolist() == [[1]] * 7


def test_matrices_that_do_not_fit():
    refused(r"matrix 2 .* does not fit the labels\n.*39 rows\n.*40 × 12", whole_chain, CHAIN, 39, RankerParams())
    with pytest.raises(InputError, match=r"matrix 0 .* does not fit the next matrix\n.*12 rows\n.*3 × 1"):
        whole_chain([CHAIN[0], CHAIN[2]], 40, RankerParams())


@pytest.mark.parametrize("mode", ["matcher", "ranker"])
def test_folders_of_either(tmp_path, mode):
    """A matcher predicts nodes, so it saves no label names."""
    names = [f"name {i}" for i in range(40)]
    model = XRLinear.train(
        X, Y, names=names, tree=LabelTree.from_chain(CHAIN), params=XRLinearParams(ranker=ranker_params(mode=mode))
    )
    model.save(tmp_path / "model")
    again = XRLinear.load(tmp_path / "model")
    assert again.names == (names if mode == "ranker" else None)
    assert again.ranker.nr_labels == (40 if mode == "ranker" else 12)
    assert rows_of(again.predict(X)) == rows_of(model.predict(X))
    bare = XRLinear.load(tmp_path / "model" / "ranker")
    assert rows_of(bare.predict(X.rows(slice(0, 5)))) == rows_of(model.predict(X.rows(slice(0, 5))))


def test_counts_of_labels_do_not_matter_to_a_matcher():
    twice = csc_matrix(2 * Y)
    params = ranker_params(mode="matcher")
    ours = train_rankers(X, twice, CHAIN, params=params, threads=1)
    assert_same_levels(ours.levels, train_rankers(X, Y, CHAIN, params=params, threads=1).levels)
