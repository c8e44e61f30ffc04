"""The matcher's options on each level of the tree, and those of them that affect its result."""

import dataclasses
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.matcher.tasks import deepest_level
from xmc_tf.params import MatcherParams, MatcherPredParams, override_levels, per_level
from xmc_tf.pipeline.inputs import Recipe
from xmc_tf.tree import LabelTree

# The matcher's parameters that change how it computes or what it logs, but not its result.
_WITHOUT_EFFECT = (
    "batch_gen_workers", "logging_steps", "pre_tokenize", "pre_tensorize_labels", "use_gpu", "checkpoint_dir",
    "cache_dir", "max_num_labels_in_gpu", "model_shortcut", "init_model_dir", "threshold",
)  # fmt: skip


def level_params(recipe: Recipe, tree: LabelTree) -> tuple[tuple[MatcherParams, ...], tuple[MatcherPredParams, ...]]:
    """Return the training and prediction options of each level, including the caller's overrides."""
    levels = deepest_level(tree, recipe.params.max_match_clusters)
    chain = per_level(recipe.params.matcher_params_chain, levels, "matcher_params_chain")
    scales = recipe.steps_scale or (1.0,)
    scales = scales * levels if len(scales) == 1 else scales
    if len(scales) != levels or min(scales) <= 0:
        raise InputError(
            "--steps-scale does not fit the tree",
            expected=f"a number above 0 for each fine-tuned level, {levels} in total, or one for all",
            received=" ".join(f"{scale:g}" for scale in scales),
        )
    pred_chain = override_levels(recipe.pred_params.matcher_params_chain, levels, recipe.prediction)
    return tuple(_scaled(one, scale) for one, scale in zip(chain, scales, strict=True)), pred_chain


def with_effect(params: MatcherParams) -> dict[str, Any]:
    """Return the options that affect the result of a level."""
    return {name: value for name, value in params.to_json().items() if name not in _WITHOUT_EFFECT}


def without_reading(params: MatcherPredParams) -> dict[str, Any]:
    """Return a level's prediction options without those for windows, which are inputs of the stage anyway."""
    return {name: value for name, value in params.to_json().items() if name not in ("long_texts", "max_windows")}


def _scaled(params: MatcherParams, scale: float) -> MatcherParams:
    return dataclasses.replace(
        params,
        max_steps=max(1, round(params.max_steps * scale)) if params.max_steps > 0 else params.max_steps,
        num_train_epochs=max(1, round(params.num_train_epochs * scale)),
    )
