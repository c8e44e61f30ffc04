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


def rank_in_document(rows: np.ndarray, labels: np.ndarray, probability: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return, for each candidate, the number of better ones in its document whose labels have training documents.

    Labels without documents do not count, so adding labels does not change the probabilities of existing ones.
    """
    order = np.lexsort((labels, -probability, rows))
    better = np.concatenate([[0], np.cumsum(known[order])])
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = better[:-1] - better[np.searchsorted(rows, rows[order])]
    return ranks


def learn_rank_weights(probability: np.ndarray, ranks: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Fit the weights of the calibration, one for each of ``RANK_NAMES``; ``SAME`` if they would reorder labels."""
    some = ranks < _FITTED
    weights = np.round(fit_logistic(_features(probability[some], ranks[some]), right[some], SAME), 6)
    keeps_order = (np.cumsum(weights[1:4]) > 0).all() and weights[4] <= 0
    return weights if keeps_order else SAME


def calibrated(probability: np.ndarray, ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return calibrated probabilities as float32; the order within a document is unchanged."""
    return expit(_features(probability, ranks) @ weights).astype(np.float32)


def _features(probability: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    raw = log_odds(probability.astype(np.float64))
    return np.column_stack([
        np.ones(len(raw)), raw, np.maximum(raw, -1.0), np.maximum(raw, 1.0), np.log1p(ranks)
    ])  # fmt: skip
