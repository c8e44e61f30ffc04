"""The number and shapes of label trees that an effort chooses."""

import pytest

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearChainParams,
    LinearLevelParams,
    RankerParams,
    XRLinearParams,
    params_of_effort,
    several_trees,
)


def of_effort(effort, documents=150_000, labels=16_000, **tree):
    return params_of_effort(XRLinearParams(tree=HierarchicalKMeansParams(**tree)), effort, documents, labels)


def test_more_effort_makes_more_trees_of_different_shapes_and_seeds():
    for effort, count in (("fast", 1), ("balanced", 4), ("best", 7)):
        params = of_effort(effort, seed=5)
        assert len(params.trees) == count
        assert len({(tree.max_leaf_size, tree.seed) for tree in params.trees}) == count
        assert params.trees[0].seed == 5
        assert params.ranker.hlm_args.model_chain.Cp == 0.5
    sizes = {tree.max_leaf_size for tree in of_effort("balanced").trees}
    assert sizes == {100, 400}


def test_trees_are_flat_until_their_top_would_be_too_wide():
    assert of_effort("fast", labels=16_000).trees[0].nr_splits == 256
    assert of_effort("fast", labels=50_000).trees[0].nr_splits == 512
    assert of_effort("fast", labels=60_000).trees[0].nr_splits == HierarchicalKMeansParams().nr_splits


def test_small_data_are_also_learned_without_a_tree():
    assert [tree.max_leaf_size >= 2000 for tree in of_effort("balanced", 5000, 2000).trees] == [False] * 3 + [True]
    assert not any(tree.max_leaf_size >= 200_000 for tree in of_effort("best", 10**6, 200_000).trees)
    for effort in ("fast", "balanced", "best"):
        assert len(of_effort(effort, 1000, 50).trees) == 1  # several would be the same


def test_settings_of_the_solver_that_are_not_the_defaults_stay():
    ranker = RankerParams(hlm_args=LinearChainParams(model_chain=LinearLevelParams(Cp=4.0, threshold=0.01)))
    found = params_of_effort(XRLinearParams(ranker=ranker), "balanced", 1000, 1000).ranker
    assert found == ranker
    own = RankerParams(hlm_args=LinearChainParams(neg_mining_chain="tfn+man", model_chain=LinearLevelParams(eps=0.2)))
    args = params_of_effort(XRLinearParams(ranker=own), "balanced", 1000, 1000).ranker.hlm_args
    assert (args.neg_mining_chain, args.model_chain.eps, args.model_chain.Cn) == ("tfn+man", 0.2, 0.5)


def test_an_effort_excludes_own_shapes():
    refused("unknown effort 'most'", of_effort, "most")
    refused("effort 'best' and nr-splits cannot be combined", of_effort, "best", nr_splits=4)
    two = several_trees(HierarchicalKMeansParams(), 2)
    with pytest.raises(InputError, match="effort 'fast' and 2 trees cannot be combined"):
        params_of_effort(XRLinearParams(tree=two), "fast", 1000, 1000)


def test_several_trees_have_successive_seeds():
    first = HierarchicalKMeansParams(seed=3, nr_splits=4)
    assert several_trees(first, 1) is first
    assert [tree.seed for tree in several_trees(first, 3)] == [3, 4, 5]
    assert {tree.nr_splits for tree in several_trees(first, 3)} == {4}
    for count in (0, 101):
        refused("--trees is out of range", several_trees, first, count)
