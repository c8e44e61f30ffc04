"""One calibrated probability from several sources: rankers and the names of the labels."""

from xmc_tf.fusion.evidence import (
    POOL,
    SCORES,
    Decisions,
    Evidence,
    ScoreHeldOut,
    bounded_post_processor,
    check_scores,
    chosen_threshold,
    promised_threshold,
)
from xmc_tf.fusion.fusion import FUSION_FILES, Fusion
from xmc_tf.fusion.held_out import held_out_folds

__all__ = [
    "FUSION_FILES",
    "POOL",
    "SCORES",
    "Decisions",
    "Evidence",
    "Fusion",
    "ScoreHeldOut",
    "bounded_post_processor",
    "check_scores",
    "chosen_threshold",
    "held_out_folds",
    "promised_threshold",
]
