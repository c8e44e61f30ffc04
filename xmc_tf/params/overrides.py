"""What a caller asks of one prediction, put over what the model was given."""

import dataclasses
from typing import TypeVar

from xmc_tf.params.base import per_level
from xmc_tf.params.linear import LinearLevelPredParams
from xmc_tf.params.matcher import MatcherPredParams

Level = TypeVar("Level", LinearLevelPredParams, MatcherPredParams)


def override_levels(
    chain: Level | tuple[Level, ...],
    depth: int,
    *,
    beam_size: int | None = None,
    only_topk: int | None = None,
    post_processor: str | None = None,
) -> tuple[Level, ...]:
    """Prediction parameters of each level, with the caller's wishes.

    Example:
        >>> levels = override_levels(LinearLevelPredParams(), 3, beam_size=10, only_topk=5)
        >>> [level.only_topk for level in levels]
        [10, 10, 5]

    Args:
        chain: one block for all levels, or one each.
        depth: how many levels there are.
        beam_size: nodes kept at each level but the last.
        only_topk: labels kept at the last level.
        post_processor: what becomes of the scores, at every level.

    Returns:
        One block a level, from the top down.
    """
    levels = list(per_level(chain, depth, "model_chain"))
    for i, level in enumerate(levels):
        keep = only_topk if i == depth - 1 else beam_size
        wishes = {"only_topk": keep, "post_processor": post_processor}
        levels[i] = dataclasses.replace(level, **{k: v for k, v in wishes.items() if v is not None})
    return tuple(levels)
