"""Thresholds: which precision and recall do the labels have whose score reaches a threshold?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xmc_tf.report.pairs import Pairs

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_DIGITS = 3  # significant digits of a threshold, so that it can be written down
_CURVE_POINTS = 200
_ENOUGH = 20  # labels that a point of the curve is based on: precision of fewer is random


@dataclass(frozen=True)
class Point:
    """The result of assigning every label whose score is at least a threshold.

    Args:
        threshold: the lowest score that is accepted.
        precision: share of the assigned labels that are true.
        recall: share of the true labels that are assigned.
        f1: harmonic mean of both.
        labels_per_document: mean number of assigned labels.
        documents_with_label: share of the documents with at least one.
    """

    threshold: float
    precision: float
    recall: float
    f1: float
    labels_per_document: float
    documents_with_label: float


@dataclass(frozen=True)
class Thresholds:
    """Precision and recall by threshold.

    Args:
        best: the threshold with the best F1; None if nothing is predicted.
        for_precision: for each of ``TARGETS``, the lowest threshold that reaches it, or None.
        curve: points from high to low thresholds, for a chart.
        lowest: the point at which everything predicted is accepted.
    """

    best: Point | None
    for_precision: tuple[tuple[float, Point | None], ...]
    curve: tuple[Point, ...]
    lowest: Point | None


def find_thresholds(pairs: Pairs, targets: Sequence[float] = TARGETS) -> Thresholds:
    """Measure all thresholds of three significant digits that make a difference.

    Args:
        pairs: the predicted pairs.
        targets: precisions to find thresholds for.
    """
    if not len(pairs.scores):
        return Thresholds(None, tuple((target, None) for target in targets), (), None)
    order = np.argsort(-pairs.scores, kind="stable")
    scores, found = pairs.scores[order], np.cumsum(pairs.correct[order])
    thresholds = np.unique(rounded_down(scores))[::-1]  # from high to low
    accepted = np.searchsorted(-scores, -thresholds, side="right")
    right = found[accepted - 1]
    precision, recall = right / accepted, right / max(pairs.true, 1)
    f1 = 2 * right / (accepted + pairs.true)
    highest = np.sort(-pairs.scores[pairs.best_of_documents])
    documents = np.searchsorted(highest, -thresholds, side="right")

    def point(place: int) -> Point:
        """Return the point at a place of ``thresholds``."""
        return Point(
            threshold=float(thresholds[place]),
            precision=float(precision[place]),
            recall=float(recall[place]),
            f1=float(f1[place]),
            labels_per_document=float(accepted[place] / pairs.nr_documents),
            documents_with_label=float(documents[place] / pairs.nr_documents),
        )

    reached = []
    for target in targets:
        good = np.flatnonzero(precision >= target)
        reached.append((target, point(int(good[-1])) if len(good) else None))
    last = len(thresholds) - 1
    first = min(int(np.searchsorted(accepted, _ENOUGH)), last)
    # Evenly by recall, so that the curve is smooth where it is seen.
    steps = np.searchsorted(recall, np.linspace(recall[first], recall[last], _CURVE_POINTS))
    shown = np.unique(np.clip(np.append(steps, [first, last]), first, last))
    return Thresholds(
        point(int(np.argmax(f1))), tuple(reached), tuple(point(int(place)) for place in shown), point(last)
    )


def rounded_down(scores: np.ndarray) -> np.ndarray:
    """Return the largest number of three significant digits that is not above each score.

    Example:
        >>> rounded_down(np.array([0.23456, 12.0]))
        array([ 0.234, 12.   ])
    """
    scores = np.asarray(scores, np.float64)
    size = np.abs(scores)
    exponent = np.floor(np.log10(size, out=np.zeros_like(size), where=size > 0)).astype(np.int64)
    # Decimals instead of a step of 10**exponent: a division by 1000 is exact to the last digit, a product is not.
    decimals = np.clip(_DIGITS - 1 - exponent, -300, 300)
    step = 10.0 ** np.abs(decimals)
    down = np.where(decimals >= 0, np.floor(scores * step) / step, np.floor(scores / step) * step)
    return np.minimum(down, scores)
