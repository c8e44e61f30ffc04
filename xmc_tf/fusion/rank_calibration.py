"""Calibration by rank: the probability of a label also depends on its rank in the document.

If all labels of a document have small probabilities, the best one is correct more often than its features suggest. The
rank is the number of better labels that have training documents. The correction does not change the order of labels.
"""

import numpy as np
from scipy.special import expit

from xmc_tf.fusion.candidate_numbers import log_odds
from xmc_tf.fusion.logistic import fit_logistic

RANK_NAMES = ("constant", "probability", "probability above -1", "probability above 1", "rank")
SAME = np.array([0, 1, 0, 0, 0], np.float64)
"""The weights that leave probabilities as they are."""
_FITTED = 20  # best labels of a document, from which the weights are learned


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
    """Fit the weights of the calibration, one for each of ``RANK_NAMES``; ``SAME`` if they would reorder labels."""
    some = ranks < _FITTED
    features = _features(probability[some], ranks[some])
    weights = np.round(fit_logistic(features, right[some], SAME, guess=guess), 6)
    keeps_order = (np.cumsum(weights[1:4]) > 0).all() and weights[4] <= 0
    return weights if keeps_order else SAME


def calibrated(
    probability: np.ndarray, ranks: np.ndarray, weights: np.ndarray, scarcity: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return calibrated probabilities as float32; the order within a document is unchanged.

    The less is known of a text (``scarcity``), the less its probabilities change: the best label of a whole document
    is usually right, the best one of two words is not.
    """
    features = _features(probability, ranks)
    corrected = features @ weights
    return expit(corrected + scarcity * (features[:, 1] - corrected)).astype(np.float32)


def _features(probability: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    raw = log_odds(probability.astype(np.float64))
    return np.column_stack([
        np.ones(len(raw)), raw, np.maximum(raw, -1.0), np.maximum(raw, 1.0), np.log1p(ranks)
    ])  # fmt: skip
