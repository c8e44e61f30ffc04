"""Whose scores count where the user does not say it."""

import pytest

from xmc_tf.common.errors import InputError
from xmc_tf.params import (
    MatcherParams,
    MatcherPredParams,
    PredictionOptions,
    XTransformerParams,
    XTransformerPredParams,
)
from xmc_tf.pipeline.ensembles import chosen_method
from xmc_tf.pipeline.inputs import Recipe


@pytest.mark.parametrize(
    ("loss", "in_file", "head_of_labels", "chosen"),
    [
        ("cross-entropy", None, True, "root_average"),
        ("cross-entropy", None, False, "concat-only"),  # a head of clusters scores no labels
        ("weighted-squared-hinge", None, True, "concat-only"),  # margins are no probabilities
        ("weighted-squared-hinge", "average", True, "average"),
        ("cross-entropy", "transformer-only", True, "concat-only"),  # PECOS's files mean the levels by it
        ("cross-entropy", "rank_average", True, "rank_average"),
    ],
)
def test_what_files_say_or_what_the_loss_allows(loss, in_file, head_of_labels, chosen):
    recipe = Recipe(
        params=XTransformerParams(matcher_params_chain=MatcherParams(loss_function=loss)),
        pred_params=XTransformerPredParams(matcher_params_chain=MatcherPredParams(ensemble_method=in_file)),
    )
    assert chosen_method(recipe, head_of_labels) == chosen


@pytest.mark.parametrize("method", ["concat-only", "average"])
def test_scores_of_rankers_that_there_are_not(method):
    with pytest.raises(InputError, match=f"{method} needs rankers(.|\n)*--only-encoder"):
        Recipe(XTransformerParams(only_encoder=True), prediction=PredictionOptions(ensemble_method=method))
