"""The numbers whose weighted sum is a label's log-odds: one declaration each, for both runtimes.

To add one, declare it in ``WEIGHTED_NUMBERS``. Training, prediction and the SavedModel then compute it, interrupted
trainings learn the weights again, and models that were trained without it are refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from xmc_tf.fusion.candidate_numbers import CandidateNumbers, candidate_numbers
from xmc_tf.fusion.candidates import LabelCandidates
from xmc_tf.label_names.cold_start import cold_start


@dataclass(frozen=True)
class WeightedNumber:
    name: str  # by which models store its weight
    of: Callable[[CandidateNumbers], Any]
    of_short_texts: bool = False  # learned from documents that are cut to a few words; 0 if enough of a text is known


SURE = 5.0
"""Bound of log-odds in short texts: one bit of a score near 1 changes its log-odds by 0.0005, and encoders round."""

# Scores and names count by their log-odds. A piecewise linear function with two bends fits better than a straight line.
WEIGHTED_NUMBERS = (
    WeightedNumber("constant", lambda c: c.one),
    WeightedNumber("score", lambda c: c.score),
    WeightedNumber("score above -2", lambda c: c.ops.maximum(c.score, -2.0)),
    WeightedNumber("score above 0", lambda c: c.ops.maximum(c.score, 0.0)),
    WeightedNumber("no ranker", lambda c: 1.0 - c.ranked),
    WeightedNumber("name", lambda c: c.name),
    WeightedNumber("name above -3", lambda c: c.ops.maximum(c.name, -3.0) * c.named),
    WeightedNumber("name above -1", lambda c: c.ops.maximum(c.name, -1.0) * c.named),
    WeightedNumber("name present", lambda c: c.named),
    WeightedNumber("score × name", lambda c: c.score * c.name),
    WeightedNumber("score × name present", lambda c: c.score * c.named),
    WeightedNumber("documents", lambda c: c.log_documents),
    WeightedNumber("best score of the text", lambda c: c.log_odds(c.ops.best_of_text(c.probability))),
    WeightedNumber("sum of scores of the text", lambda c: c.ops.log(c.ops.sum_of_text(c.probability) + 0.1)),
    WeightedNumber("similarity", lambda c: c.name_similarity),
    WeightedNumber("similarity above 1", lambda c: c.ops.maximum(c.name_similarity - 1.0, 0.0)),
    WeightedNumber("similarity above 2", lambda c: c.ops.maximum(c.name_similarity - 2.0, 0.0)),
    WeightedNumber("closeness", lambda c: c.center_cosine),
    WeightedNumber("closeness below the best", lambda c: c.center_cosine - c.ops.best_of_text(c.center_cosine)),
    WeightedNumber("part of a name", lambda c: c.part),
    WeightedNumber("whole name", lambda c: c.whole),
    WeightedNumber("whole name as written", lambda c: c.exact),
    WeightedNumber("covered part of a name", lambda c: c.part * c.coverage),
    WeightedNumber("rarity of the name", lambda c: c.rarity),
    WeightedNumber("whole name of several words", lambda c: c.whole * c.several_words),
    WeightedNumber("score × mentioned", lambda c: c.score * c.mentioned),
    WeightedNumber("mentions", lambda c: c.often),
    WeightedNumber("position", lambda c: c.whole * c.position),
    WeightedNumber("inside a longer name", lambda c: c.inside),
    WeightedNumber("share of the mentions of the text", lambda c: c.share),
    WeightedNumber("little known", lambda c: c.guessed, of_short_texts=True),
    WeightedNumber("almost nothing known", lambda c: c.ops.maximum(c.guessed - 0.9, 0.0) * 10.0, of_short_texts=True),
    WeightedNumber("score × little known", lambda c: c.guessed * c.score, of_short_texts=True),
    WeightedNumber("documents × little known", lambda c: c.guessed * c.log_documents, of_short_texts=True),
    WeightedNumber(
        "best score × little known",
        lambda c: c.guessed * c.ops.clip(c.log_odds(c.ops.best_of_text(c.probability)), -SURE, SURE),
        of_short_texts=True,
    ),
)
NAMES = tuple(number.name for number in WEIGHTED_NUMBERS)
OF_SHORT_TEXTS = np.array([number.of_short_texts for number in WEIGHTED_NUMBERS])


def first_weights(encoded: bool = False) -> np.ndarray:
    """Return the weights before any document is labelled: those learned on other vocabularies."""
    weights = cold_start().encoded if encoded else cold_start().weights
    return np.array([weights.get(name, 0.0) for name in NAMES])


def weighted_numbers(found: LabelCandidates, log_documents: np.ndarray) -> np.ndarray:
    """Return float64 [candidates, numbers]. ``log_documents`` is log(1 + training documents) of each label."""
    candidates = candidate_numbers(found, log_documents)
    out = np.empty((len(found.rows), len(WEIGHTED_NUMBERS)))
    for place, number in enumerate(WEIGHTED_NUMBERS):
        out[:, place] = number.of(candidates)
    return out
