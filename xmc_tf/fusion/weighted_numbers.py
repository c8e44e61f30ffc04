"""The numbers whose weighted sum is a label's log-odds: one declaration each, for both runtimes.

To add one, declare it in ``WEIGHTED_NUMBERS`` with the next ``since``. Training, prediction and the SavedModel then
compute it, models that were trained before keep their answers, and interrupted trainings learn the weights again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xmc_tf.fusion.candidate_numbers import CandidateNumbers, numbers_of
from xmc_tf.fusion.candidates import LabelCandidates


@dataclass(frozen=True)
class Number:
    name: str  # by which models store its weight
    of: Callable[[CandidateNumbers], Any]
    default: float = 0.0  # weight if there are no documents to learn from
    of_short_texts: bool = False  # learned from documents that are cut to a few words; 0 if enough of a text is known
    since: int = 1  # the number of times that numbers were added; models of before weigh it with 0


# Scores and names count by their log-odds. A piecewise linear function with two bends fits better than a straight line.
WEIGHTED_NUMBERS = (
    Number("constant", lambda c: c.one),
    # Without documents to learn from: the score is nearly a probability, and names raise it.
    Number("score", lambda c: c.score, default=1),
    Number("score above -2", lambda c: c.ops.maximum(c.score, -2.0)),
    Number("score above 0", lambda c: c.ops.maximum(c.score, 0.0)),
    Number("no ranker", lambda c: 1.0 - c.ranked, default=-4),
    Number("name", lambda c: c.name, default=0.3),
    Number("name above -3", lambda c: c.ops.maximum(c.name, -3.0) * c.named),
    Number("name above -1", lambda c: c.ops.maximum(c.name, -1.0) * c.named),
    Number("name present", lambda c: c.named, default=1),
    Number("score × name", lambda c: c.score * c.name),
    Number("score × name present", lambda c: c.score * c.named),
    Number("documents", lambda c: c.log_documents),
    Number("best score of the text", lambda c: c.log_odds(c.ops.best_of_text(c.probability))),
    Number("sum of scores of the text", lambda c: c.ops.log(c.ops.sum_of_text(c.probability) + 0.1)),
    Number("similarity", lambda c: c.name_similarity),
    Number("similarity above 1", lambda c: c.ops.maximum(c.name_similarity - 1.0, 0.0)),
    Number("similarity above 2", lambda c: c.ops.maximum(c.name_similarity - 2.0, 0.0)),
    Number("closeness", lambda c: c.center_cosine, since=2),
    Number("closeness below the best", lambda c: c.center_cosine - c.ops.best_of_text(c.center_cosine), since=2),
    Number("part of a name", lambda c: c.part, since=2),
    Number("whole name", lambda c: c.whole, since=2),
    Number("whole name as written", lambda c: c.exact, since=2),
    Number("covered part of a name", lambda c: c.part * c.coverage, since=2),
    Number("rarity of the name", lambda c: c.rarity, since=2),
    Number("whole name of several words", lambda c: c.whole * c.several_words, since=2),
    Number("score × mentioned", lambda c: c.score * c.mentioned, since=2),
    Number("mentions", lambda c: c.often, since=2),
    Number("position", lambda c: c.whole * c.position, since=2),
    Number("inside a longer name", lambda c: c.inside, since=2),
    Number("share of the mentions of the text", lambda c: c.share, since=2),
    Number("little known", lambda c: c.guessed, of_short_texts=True, since=3),
    Number("almost nothing known", lambda c: c.ops.maximum(c.guessed - 0.9, 0.0) * 10.0, of_short_texts=True, since=3),
    Number("score × little known", lambda c: c.guessed * c.score, of_short_texts=True, since=3),
    Number("documents × little known", lambda c: c.guessed * c.log_documents, of_short_texts=True, since=3),
    Number(
        "best score × little known",
        lambda c: c.guessed * c.log_odds(c.ops.best_of_text(c.probability)),
        of_short_texts=True,
        since=3,
    ),
)
NAMES = tuple(number.name for number in WEIGHTED_NUMBERS)
OF_SHORT_TEXTS = np.array([number.of_short_texts for number in WEIGHTED_NUMBERS])
VERSION = max(number.since for number in WEIGHTED_NUMBERS)
DEFAULT_WEIGHTS = np.array([number.default for number in WEIGHTED_NUMBERS], np.float64)


def weighted_numbers(found: LabelCandidates, log_documents: np.ndarray) -> np.ndarray:
    """Return float64 [candidates, numbers]. ``log_documents`` is log(1 + training documents) of each label."""
    candidates = numbers_of(found, log_documents)
    out = np.empty((len(found.rows), len(WEIGHTED_NUMBERS)))
    for place, number in enumerate(WEIGHTED_NUMBERS):
        out[:, place] = number.of(candidates)
    return out


def weights_of(stored: Mapping[str, float]) -> np.ndarray | None:
    """Return the weights that a model of this or an earlier version stores by name; None if they are of another."""
    needed = {number.name for number in WEIGHTED_NUMBERS if number.since == 1}
    if not needed <= {*stored} <= {*NAMES}:
        return None
    return np.array([stored.get(name, 0.0) for name in NAMES], np.float64)
