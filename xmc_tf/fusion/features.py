"""The features of a candidate, from which its probability is computed."""

import numpy as np

from xmc_tf.fusion.candidates import LabelCandidates

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
)
"""All scores and worths are log-odds. A function of them that bends at two places fits better than a straight line."""
LATER = NAMES[-2:]
"""The features that models of older versions do not have."""

# The weights without any documents to learn from: the score is nearly a probability, and names support it.
DEFAULT_WEIGHTS = np.array([0, 1, 0, 0, -4, 0.3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], np.float64)
LARGEST = 9.0  # log-odds are limited to this


def candidate_features(found: LabelCandidates, log_documents: np.ndarray) -> np.ndarray:
    """Return the features of candidates: float64 [candidates, features].

    Args:
        found: the candidates.
        log_documents: for each label, the logarithm of 1 + the number of its training documents.
    """
    best, total = _of_rows(found)
    return _columns(found, found.score, log_documents[found.labels], best, total, found.closeness)


def features_if_new(found: LabelCandidates) -> np.ndarray:
    """Return the features that each candidate would have if its label had no documents, and so no score.

    Args:
        found: the candidates; the worths are those of names of labels without documents.
    """
    best, total = _of_rows(found, without_own=True)
    none = np.zeros(len(found.rows))
    return _columns(found, none, none, best, total, none)


def _columns(
    found: LabelCandidates,
    scores: np.ndarray,
    log_documents: np.ndarray,
    best: np.ndarray,
    total: np.ndarray,
    closeness: np.ndarray,
) -> np.ndarray:
    worths, similarity = found.worth, found.similarity
    ranked, named = scores > 0, worths > 0
    score = np.where(ranked, log_odds(scores), 0.0)
    name = np.where(named, log_odds(worths), 0.0)
    out = np.empty((len(scores), len(NAMES)))
    columns: tuple[np.ndarray | float, ...] = (
        1.0, score, np.maximum(score, -2.0), np.maximum(score, 0.0), ~ranked, name, np.maximum(name, -3.0) * named,
        np.maximum(name, -1.0) * named, named, score * name, score * named, log_documents, log_odds(best),
        np.log(total + 0.1), similarity, np.maximum(similarity - 1.0, 0.0), np.maximum(similarity - 2.0, 0.0),
        closeness, closeness - _best_of_rows(found.rows, closeness),
    )  # fmt: skip
    for place, column in enumerate(columns):
        out[:, place] = column
    return out


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)), limited to ``LARGEST``."""
    least = 1.0 / (1.0 + np.exp(LARGEST))
    probability = np.clip(probability, least, 1.0 - least)
    return np.log(probability / (1.0 - probability))


def _best_of_rows(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for each candidate the largest value of its document.

    Args:
        rows: the document of each candidate, ascending.
        values: a value of each candidate.
    """
    if not len(rows):
        return np.zeros(0)
    first = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    return np.repeat(np.maximum.reduceat(values, first), np.diff(np.append(first, len(rows))))


def _of_rows(found: LabelCandidates, without_own: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return for each candidate the best score of its document, and the sum of the scores.

    Args:
        found: the candidates.
        without_own: whether to leave out the candidate's own score.
    """
    if not len(found.rows):
        return np.zeros(0), np.zeros(0)
    score = found.score
    first = np.flatnonzero(np.concatenate([[True], found.rows[1:] != found.rows[:-1]]))
    counts = np.diff(np.append(first, len(found.rows)))
    best, total = (np.repeat(over.reduceat(score, first), counts) for over in (np.maximum, np.add))
    if not without_own:
        return best, total
    leads = score == best
    second = np.repeat(np.maximum.reduceat(np.where(leads, 0.0, score), first), counts)
    alone = np.repeat(np.add.reduceat(leads.astype(np.int64), first), counts) == 1
    return np.where(leads & alone, second, best), np.maximum(total - score, 0.0)
