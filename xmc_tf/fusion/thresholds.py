"""Probability thresholds for the best F1 or for a required precision, chosen on held-out documents."""

import math
from typing import NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError

CONFIDENCE = 0.95
"""Confidence that new documents, as many as were held out, keep a promised precision."""
# CONFIDENCE of a normal distribution lies below 1.645 standard deviations. Users measure the precision on documents of
# their own, so it differs from the held-out precision by the sampling errors of both, √2 times the error of one.
_DEVIATIONS = 1.645 * math.sqrt(2)
_MOST_POINTS = 400
_BINS = 20  # of probabilities, for the calibration error
_FEWEST = 30  # the precision of fewer predicted labels is not a reliable estimate


class PrecisionThreshold(NamedTuple):
    """A threshold that keeps a required precision, and the evidence for this."""

    threshold: float  # the lowest probability that is predicted
    precision: float  # of the held-out labels above it
    labels: int  # number of these labels


class PrecisionCurve(NamedTuple):
    """Precision and recall on held-out documents at each threshold."""

    thresholds: list[float]  # descending
    precision: list[float]  # of the labels with at least this probability
    recall: list[float]  # share of all labels of the documents that have at least this probability
    lower: list[float]  # lower bounds of the precision of new documents
    counts: list[int]  # number of labels with at least this probability

    @property
    def best_f1(self) -> float:
        """The threshold with the best micro-averaged F1."""
        if not self.thresholds:
            return 0.5
        p, r = np.array(self.precision), np.array(self.recall)
        return self.thresholds[int(np.argmax(2 * p * r / np.maximum(p + r, 1e-12)))]

    @property
    def best_promise(self) -> float:
        """The highest precision that can be promised; 0 if none can."""
        return math.floor(1000 * max(self.lower, default=0.0)) / 1000

    def for_precision(self, least: float) -> PrecisionThreshold:
        """Return the lowest threshold at which new documents reach a precision with confidence ``CONFIDENCE``."""
        enough = np.flatnonzero(np.array(self.lower) >= least)
        if not len(enough):
            raise InputError(
                f"this model cannot promise a precision of {least:g}",
                expected=f"at most {self.best_promise:g}, according to its held-out documents"
                if self.lower
                else f"a model trained on more documents: fewer than {_FEWEST} held-out labels are not enough",
                fix="lower --min-precision, or set a probability threshold yourself (--threshold)",
            )
        place = int(enough[-1])
        return PrecisionThreshold(self.thresholds[place], self.precision[place], self.counts[place])


def measure_curve(probability: np.ndarray, right: np.ndarray, rows: np.ndarray, nr_right: int) -> PrecisionCurve:
    """Measure precision and recall at each threshold. ``nr_right`` is the number of true labels of all documents."""
    order = np.argsort(-probability, kind="stable")
    hits = np.cumsum(right[order])
    count = len(order)
    if count < _FEWEST:
        return PrecisionCurve([], [], [], [], [])
    # More points among the few most probable labels, where the precision changes quickly.
    at = np.unique(np.geomspace(_FEWEST, count, _MOST_POINTS).astype(np.int64)) - 1
    precision = hits[at] / (at + 1)
    lower = _lower_bounds(at + 1.0, precision, *(sums[at] for sums in _sums_of_squares(right[order], rows[order])))
    return PrecisionCurve(
        [round(float(one), 6) for one in probability[order][at]],
        [round(float(one), 5) for one in precision],
        [round(float(one), 5) for one in hits[at] / max(nr_right, 1)],
        [round(float(one), 5) for one in lower],
        [int(one) + 1 for one in at],
    )


def calibration_error(probability: np.ndarray, right: np.ndarray) -> float:
    """Return the expected calibration error: the mean difference between probability and share of correct labels."""
    bins = np.minimum((probability * _BINS).astype(np.int64), _BINS - 1)
    gaps = np.bincount(bins, probability.astype(np.float64) - right, _BINS)
    return float(np.abs(gaps).sum() / len(bins)) if len(bins) else math.nan


def _sums_of_squares(right: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return running sums over documents of h², h·c and c², from the most probable candidate to the least.

    A document has c candidates so far, of which h are correct.
    """
    by_row = np.argsort(rows, kind="stable")
    hit = right[by_row].astype(np.float64)
    first = np.searchsorted(rows[by_row], rows[by_row])  # index of the document's first candidate
    before = np.arange(len(rows)) - first
    hits_before = np.cumsum(hit) - hit
    hits_before -= hits_before[first]
    # What each sum gains by a candidate, from (h + hit)² - h² and so on.
    gains = 2 * hits_before * hit + hit, hits_before + hit * (before + 1), 2 * before + 1.0
    sums = np.empty((3, len(rows)))
    sums[:, by_row] = gains
    h2, hc, c2 = np.cumsum(sums, axis=1)
    return h2, hc, c2


def _lower_bounds(
    counts: np.ndarray, precision: np.ndarray, h2: np.ndarray, hc: np.ndarray, c2: np.ndarray
) -> np.ndarray:
    """Return Wilson's lower bound of each precision, based on the effective number of independent labels."""
    alone = precision * (1 - precision) / counts
    # Labels of a document that agree more than by chance count as fewer labels, but never as more.
    together = np.maximum((h2 - 2 * precision * hc + precision**2 * c2) / counts**2, alone)
    count = counts * np.divide(alone, together, out=np.ones_like(alone), where=alone > 0)
    z2 = _DEVIATIONS**2
    middle = precision + z2 / (2 * count)
    spread = _DEVIATIONS * np.sqrt(precision * (1 - precision) / count + z2 / (4 * count**2))
    return (middle - spread) / (1 + z2 / count)
