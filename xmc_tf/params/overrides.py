"""Prediction options that override those of a model, level by level."""

import dataclasses
from dataclasses import dataclass
from typing import TypeVar

from xmc_tf.params.base import per_level
from xmc_tf.params.linear import LinearLevelPredParams
from xmc_tf.params.matcher import MatcherPredParams


@dataclass(frozen=True)
class PredictionOverrides:
    """Prediction options for a tree whose depth is not known yet; None leaves the parameters as they are.

    Args:
        beam_size: number of nodes kept at each level but the last.
        only_topk: number of labels kept at the last level.
        post_processor: function applied to the scores of each level.
    """

    beam_size: int | None = None
    only_topk: int | None = None
    post_processor: str | None = None


Level = TypeVar("Level", LinearLevelPredParams, MatcherPredParams)


def override_levels(
    chain: Level | tuple[Level, ...],
    depth: int,
    *,
    beam_size: int | None = None,
    only_topk: int | None = None,
    post_processor: str | None = None,
) -> tuple[Level, ...]:
    """Return the prediction parameters of each level, with some options overridden.

    Example:
        >>> levels = override_levels(LinearLevelPredParams(), 3, beam_size=10, only_topk=5)
        >>> [level.only_topk for level in levels]
        [10, 10, 5]

    Args:
        chain: one block for all levels, or one per level.
        depth: number of levels.
        beam_size: number of nodes kept at each level but the last.
        only_topk: number of labels kept at the last level.
        post_processor: function applied to the scores of each level.

    Returns:
        One block per level, from the top down.
    """
    levels = list(per_level(chain, depth, "model_chain"))
    for i, level in enumerate(levels):
        keep = only_topk if i == depth - 1 else beam_size
        options = {"only_topk": keep, "post_processor": post_processor}
        levels[i] = dataclasses.replace(level, **{name: value for name, value in options.items() if value is not None})
    return tuple(levels)
