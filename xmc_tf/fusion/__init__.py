"""Combine the rankers' scores and the label names into one calibrated probability."""

from xmc_tf.fusion.choice import EvidenceChoice, SkipReasons, choose_evidence, held_out_folds
from xmc_tf.fusion.evidence import (
    Decision,
    ProbabilityModel,
    ScoreHeldOut,
    bounded_post_processor,
    decide,
    hidden_labels,
)
from xmc_tf.fusion.fusion import Fusion
from xmc_tf.fusion.short_texts import HeldOutScores

__all__ = [
    "Decision",
    "EvidenceChoice",
    "Fusion",
    "HeldOutScores",
    "ProbabilityModel",
    "ScoreHeldOut",
    "SkipReasons",
    "bounded_post_processor",
    "choose_evidence",
    "decide",
    "held_out_folds",
    "hidden_labels",
]
