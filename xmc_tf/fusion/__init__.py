"""One calibrated probability from several sources: rankers and the names of the labels."""

from xmc_tf.fusion.evidence import (
    POOL,
    SCORES,
    Evidence,
    ScoreHeldOut,
    bounded_post_processor,
    check_scores,
    chosen_threshold,
)
from xmc_tf.fusion.fusion import FUSION_FILES, Fusion

__all__ = [
    "FUSION_FILES",
    "POOL",
    "SCORES",
    "Evidence",
    "Fusion",
    "ScoreHeldOut",
    "bounded_post_processor",
    "check_scores",
    "chosen_threshold",
]
