"""The features of a candidate, from which its probability is computed."""

import numpy as np

from xmc_tf.fusion.candidates import Candidates

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
)
"""All scores and worths are log-odds. A function of them that bends at two places fits better than a straight line."""

# The weights without any documents to learn from: the score is nearly a probability, and names support it.
DEFAULT_WEIGHTS = np.array([0, 1, 0, 0, -4, 0.3, 0, 0, 1, 0, 0, 0, 0, 0], np.float64)
LARGEST = 9.0  # log-odds are limited to this


def candidate_features(found: Candidates, log_documents: np.ndarray) -> np.ndarray:
    """Return the features of candidates: float64 [candidates, features].

    Args:
        found: the candidates.
        log_documents: for each label, the logarithm of 1 + the number of its training documents.
    """
    ranked, named = found.score > 0, found.worth > 0
    score = np.where(ranked, log_odds(found.score), 0.0)
    name = np.where(named, log_odds(found.worth), 0.0)
    best, total = _of_rows(found)
    out = np.empty((len(found.rows), len(NAMES)))
    columns = (
        1.0, score, np.maximum(score, -2.0), np.maximum(score, 0.0), ~ranked, name, np.maximum(name, -3.0) * named,
        np.maximum(name, -1.0) * named, named, score * name, score * named, log_documents[found.labels], best, total,
    )  # fmt: skip
    for place, column in enumerate(columns):
        out[:, place] = column
    return out


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)), limited to ``LARGEST``."""
    least = 1.0 / (1.0 + np.exp(LARGEST))
    probability = np.clip(probability, least, 1.0 - least)
    return np.log(probability / (1.0 - probability))


def _of_rows(found: Candidates) -> tuple[np.ndarray, np.ndarray]:
    """Return for each candidate the log-odds of its document's best score, and the logarithm of the scores' sum."""
    if not len(found.rows):
        return np.zeros(0), np.zeros(0)
    first = np.flatnonzero(np.concatenate([[True], found.rows[1:] != found.rows[:-1]]))
    counts = np.diff(np.append(first, len(found.rows)))
    best = log_odds(np.maximum.reduceat(found.score, first))
    total = np.log(np.add.reduceat(found.score, first) + 0.1)
    return np.repeat(best, counts), np.repeat(total, counts)
