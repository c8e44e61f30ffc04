"""Thresholds of probabilities, chosen on held-out documents: for the best F1, or for a required precision."""

from typing import NamedTuple

import numpy as np

_MOST_POINTS = 400
_FEWEST = 30  # of fewer predicted labels, the precision is not a reliable estimate


class Curve(NamedTuple):
    """Precision and recall on held-out documents, by threshold.

    Attributes:
        thresholds: probabilities, descending.
        precision: of the labels with at least this probability.
        recall: the share of all labels of the documents that have at least this probability.
    """

    thresholds: list[float]
    precision: list[float]
    recall: list[float]

    @property
    def best_f1(self) -> float:
        """The threshold with the best F1, micro-averaged."""
        if not self.thresholds:
            return 0.5
        p, r = np.array(self.precision), np.array(self.recall)
        return self.thresholds[int(np.argmax(2 * p * r / np.maximum(p + r, 1e-12)))]

    def for_precision(self, least: float) -> float:
        """Return the lowest threshold with at least this precision; the precision itself if no threshold has it.

        Args:
            least: the required precision, between 0 and 1.
        """
        enough = np.flatnonzero(np.array(self.precision) >= least)
        if not len(enough):
            return max(least, self.thresholds[0] if self.thresholds else 0.0)
        return self.thresholds[int(enough[-1])]


def measure_curve(probability: np.ndarray, right: np.ndarray, nr_right: int) -> Curve:
    """Measure precision and recall by threshold.

    Args:
        probability: of each candidate in the held-out documents.
        right: whether the document has the label.
        nr_right: number of labels of the held-out documents, candidates or not.
    """
    order = np.argsort(-probability, kind="stable")
    hits = np.cumsum(right[order])
    count = len(order)
    if count < _FEWEST:
        return Curve([], [], [])
    # More points among the few most probable labels, where the precision changes quickly.
    at = np.unique(np.geomspace(_FEWEST, count, _MOST_POINTS).astype(np.int64)) - 1
    precision = hits[at] / (at + 1)
    return Curve(
        [round(float(one), 6) for one in probability[order][at]],
        [round(float(one), 5) for one in precision],
        [round(float(one), 5) for one in hits[at] / max(nr_right, 1)],
    )
