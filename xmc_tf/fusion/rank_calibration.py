"""Calibration by rank: the probability of a label also depends on its rank in the document.

If all labels of a document have small probabilities, the best one is correct more often than its features suggest. The
rank is the number of better labels that have training documents. The correction does not change the order of labels.
"""

import numpy as np
from scipy.special import expit

from xmc_tf.fusion.candidate_numbers import log_odds
from xmc_tf.fusion.logistic import FIXED, fit_logistic

RANK_NAMES = ("constant", "probability", "probability above -1", "probability above 1", "rank")
SAME = np.array([0, 1, 0, 0, 0], np.float64)
"""The weights that leave probabilities as they are."""
_OF_FEW = 500.0  # keeps weights learned from few right candidates close to SAME; divided by their number
_FITTED = 20  # best labels of a document, from which the weights are learned
_SIMPLER = ([0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 1])  # features that are tried until the order of labels is kept


def best_first(rows: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """Return the order of candidates by document and, within it, from the most probable one on.

    Documents are ascending, and candidates of one probability keep their order.
    """
    bits = np.asarray(probability, np.float32).view(np.int32)  # of numbers from 0 on, in the order of the numbers
    return np.argsort((np.asarray(rows, np.int64) << 32) - bits, kind="stable")


def rank_in_document(rows: np.ndarray, order: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return, for each candidate, the number of better ones in its document whose labels have training documents.

    ``order`` is that of ``best_first``. Labels without documents do not count, so adding labels does not change the
    probabilities of existing ones.
    """
    better = np.concatenate([[0], np.cumsum(known[order])])
    first = np.flatnonzero(np.diff(rows, prepend=-1))  # candidate of each document
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = better[:-1] - np.repeat(better[first], np.diff(first, append=len(rows)))
    return ranks


def learn_rank_weights(
    probability: np.ndarray, ranks: np.ndarray, right: np.ndarray, guess: np.ndarray | None = None
) -> np.ndarray:
    """Fit the weights of the calibration, one for each of ``RANK_NAMES``."""
    some = ranks < _FITTED
    return _fitted(_features(probability[some], ranks[some]), right[some], guess=guess)


def learn_short_rank_weights(
    probability: np.ndarray, ranks: np.ndarray, right: np.ndarray, scarcity: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Fit the weights for texts of which nearly nothing is known, given those for whole documents."""
    some = (ranks < _FITTED) & (scarcity > 0) & (scarcity < 1)
    features, share = _features(probability[some], ranks[some]), scarcity[some, None]
    return _fitted(share * features, right[some], ((1.0 - share) * features) @ weights)


def _fitted(
    features: np.ndarray, right: np.ndarray, given: np.ndarray | None = None, guess: np.ndarray | None = None
) -> np.ndarray:
    """Return weights that keep the order of labels: of all features, else of fewer, else ``SAME``.

    ``given`` is added to the weighted sum of the features.
    """
    for columns in _SIMPLER:
        start, penalty = SAME[columns], np.full(len(columns), 1.0 + _OF_FEW / max(right.sum(), 1))
        chosen = features[:, columns]
        if given is not None:
            start, penalty = np.append(start, 1.0), np.append(penalty, FIXED)
            chosen = np.column_stack([chosen, given])
        found = fit_logistic(chosen, right, start, penalty, guess if columns is _SIMPLER[0] else None)
        weights = np.zeros(len(SAME))
        weights[columns] = np.round(found[: len(columns)], 6)
        if (np.cumsum(weights[1:4]) > 0).all() and weights[4] <= 0:
            return weights
    return SAME


def calibrated(
    probability: np.ndarray, ranks: np.ndarray, weights: np.ndarray, short_weights: np.ndarray = SAME,
    scarcity: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Return calibrated probabilities as float32; the order within a document is unchanged.

    The less is known of a text (``scarcity``), the more ``short_weights`` count: the best label of a whole document is
    usually right, the best one of two words is not. Probabilities of a text without any known word stay as they are.
    """
    features = _features(probability, ranks)
    corrected = features @ weights
    if scarcity is not None:
        of_short = np.where(scarcity < 1, features @ short_weights, features[:, 1])
        corrected += scarcity * (of_short - corrected)
    return expit(corrected).astype(np.float32)


def _features(probability: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    raw = log_odds(probability.astype(np.float64))
    return np.column_stack([
        np.ones(len(raw)), raw, np.maximum(raw, -1.0), np.maximum(raw, 1.0), np.log1p(ranks)
    ])  # fmt: skip
