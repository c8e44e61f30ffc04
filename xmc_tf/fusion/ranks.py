"""Calibration of the best labels: a probability also depends on the label's rank among those of its document.

Among the best labels of a document, the features of each label alone do not say enough: the best of a document whose
labels all have small probabilities is right more often. The rank is the number of better labels with training
documents. The correction keeps the order of the labels.
"""

import numpy as np
from scipy.special import expit

from xmc_tf.fusion.features import log_odds
from xmc_tf.fusion.logistic import fit_logistic

RANK_NAMES = ("constant", "probability", "probability above -1", "probability above 1", "rank")
SAME = np.array([0, 1, 0, 0, 0], np.float64)
"""The weights that leave probabilities as they are."""
_FITTED = 20  # labels of a document that the weights are learned from


def rank_in_document(rows: np.ndarray, labels: np.ndarray, probability: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return for each candidate the number of better ones of its document that have training documents.

    Labels without documents do not count: labels that are added must not change the probabilities of others.

    Args:
        rows: the document of each candidate, ascending.
        labels: the label, which decides between equal probabilities.
        probability: the probability.
        known: whether the label has training documents.
    """
    order = np.lexsort((labels, -probability, rows))
    better = np.concatenate([[0], np.cumsum(known[order])])
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = better[:-1] - better[np.searchsorted(rows, rows[order])]
    return ranks


def learn_rank_weights(probability: np.ndarray, ranks: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the weights of the calibration: float64, one for each of ``RANK_NAMES``.

    Args:
        probability: of each candidate in held-out documents.
        ranks: the ranks.
        right: whether the document has the label.
    """
    some = ranks < _FITTED
    weights = np.round(fit_logistic(_features(probability[some], ranks[some]), right[some], SAME), 6)
    keeps_order = (np.cumsum(weights[1:4]) > 0).all() and weights[4] <= 0
    return weights if keeps_order else SAME


def calibrated(probability: np.ndarray, ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return calibrated probabilities: float32, in the same order within a document.

    Args:
        probability: float32, of labels.
        ranks: the rank of each among the labels of its document.
        weights: as `learn_rank_weights` returns them.
    """
    return expit(_features(probability, ranks) @ weights).astype(np.float32)


def _features(probability: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    raw = log_odds(probability.astype(np.float64))
    return np.column_stack([
        np.ones(len(raw)), raw, np.maximum(raw, -1.0), np.maximum(raw, 1.0), np.log1p(ranks)
    ])  # fmt: skip
