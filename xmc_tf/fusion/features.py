"""The features of a candidate label, from which its probability is computed."""

import numpy as np

from xmc_tf.fusion.candidates import NOT_MENTIONED, LabelCandidates
from xmc_tf.label_names.kernels import EXACT

NAMES = (
    "constant",
    "score",
    "score above -2",
    "score above 0",
    "no ranker",
    "name",
    "name above -3",
    "name above -1",
    "name present",
    "score × name",
    "score × name present",
    "documents",
    "best score of the text",
    "sum of scores of the text",
    "similarity",
    "similarity above 1",
    "similarity above 2",
    "closeness",
    "closeness below the best",
    "part of a name",
    "whole name",
    "whole name as written",
    "covered part of a name",
    "rarity of the name",
    "whole name of several words",
    "score × mentioned",
    "mentions",
    "position",
    "inside a longer name",
    "share of the mentions of the text",
)
"""All scores and worths are log-odds. A piecewise linear function with two bends fits better than a straight line."""
LATER = NAMES[-13:]
"""The features that older models do not have."""

# The weights without documents to learn from: the score is nearly a probability, and names raise it.
DEFAULT_WEIGHTS = np.array([0, 1, 0, 0, -4, 0.3, 0, 0, 1, *[0] * 21], np.float64)
RARITY = 1 / 160  # unit of the rarity of a name
LEAST_SHARE = 1e-3
LARGEST = 9.0  # bound of log-odds


def candidate_features(found: LabelCandidates, log_documents: np.ndarray) -> np.ndarray:
    """Return float64 [candidates, features]. ``log_documents`` is log(1 + training documents) of each label."""
    best, total = _best_of_rows(found.rows, found.score), _sums_of_rows(found.rows, found.score)
    scores, worths, similarity, closeness = found.score, found.worth, found.similarity, found.closeness
    ranked, named = scores > 0, worths > 0
    score = np.where(ranked, log_odds(scores), 0.0)
    name = np.where(named, log_odds(worths), 0.0)
    at, mentions = found.mention, found.mentions
    there = at != NOT_MENTIONED
    whole = there & mentions.full[at]
    part = there & ~whole
    often = np.log(np.maximum(mentions.counts[at], 1))
    strength = RARITY * mentions.rarity[at] * mentions.coverage[at].astype(np.float64) * (1 + often)
    share = there * np.log(strength / (_sums_of_rows(found.rows, strength) + LEAST_SHARE) + LEAST_SHARE)
    columns: tuple[np.ndarray | float, ...] = (
        1.0, score, np.maximum(score, -2.0), np.maximum(score, 0.0), ~ranked, name, np.maximum(name, -3.0) * named,
        np.maximum(name, -1.0) * named, named, score * name, score * named, log_documents, log_odds(best),
        np.log(total + 0.1), similarity, np.maximum(similarity - 1.0, 0.0), np.maximum(similarity - 2.0, 0.0),
        closeness, closeness - _best_of_rows(found.rows, closeness), part, whole, whole & (mentions.grade[at] == EXACT),
        part * mentions.coverage[at], RARITY * mentions.rarity[at], whole & (mentions.words[at] > 1), score * there,
        often, whole * mentions.position[at], mentions.inside[at], share,
    )  # fmt: skip
    out = np.empty((len(scores), len(NAMES)))
    for place, column in enumerate(columns):
        out[:, place] = column
    return out


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)), limited to the range from -``LARGEST`` to ``LARGEST``."""
    least = 1.0 / (1.0 + np.exp(LARGEST))
    probability = np.clip(probability, least, 1.0 - least)
    return np.log(probability / (1.0 - probability))


def _best_of_rows(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    return _over_rows(rows, values, np.maximum)


def _sums_of_rows(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    return _over_rows(rows, values, np.add)


def _over_rows(rows: np.ndarray, values: np.ndarray, over: np.ufunc) -> np.ndarray:
    if not len(rows):
        return np.zeros(0)
    first = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    return np.repeat(over.reduceat(values, first), np.diff(np.append(first, len(rows))))
