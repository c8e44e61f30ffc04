"""Thresholds: precision and recall of the labels whose score reaches a threshold."""

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
    """Precision, recall and F1 if every label with at least a threshold's score is assigned."""

    threshold: float
    precision: float
    recall: float
    f1: float
    labels_per_document: float
    documents_with_label: float


@dataclass(frozen=True)
class Thresholds:
    best: Point | None  # by F1; None if nothing is predicted
    for_precision: tuple[tuple[float, Point | None], ...]  # the lowest one for each of TARGETS
    curve: tuple[Point, ...]  # from high to low thresholds
    lowest: Point | None  # everything predicted is accepted


def find_thresholds(pairs: Pairs, targets: Sequence[float] = TARGETS) -> Thresholds:
    """Measure all thresholds of three significant digits that differ."""
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
    # Evenly spaced by recall, the horizontal axis of the chart.
    steps = np.searchsorted(recall, np.linspace(recall[first], recall[last], _CURVE_POINTS))
    shown = np.unique(np.clip(np.append(steps, [first, last]), first, last))
    return Thresholds(
        point(int(np.argmax(f1))), tuple(reached), tuple(point(int(place)) for place in shown), point(last)
    )


def rounded_down(scores: np.ndarray) -> np.ndarray:
    """Return the largest number of three significant digits that is not above each score."""
    scores = np.asarray(scores, np.float64)
    size = np.abs(scores)
    exponent = np.floor(np.log10(size, out=np.zeros_like(size), where=size > 0)).astype(np.int64)
    # Dividing by 1000 is exact to the last digit, multiplying by 0.001 is not.
    decimals = np.clip(_DIGITS - 1 - exponent, -300, 300)
    step = 10.0 ** np.abs(decimals)
    down = np.where(decimals >= 0, np.floor(scores * step) / step, np.floor(scores / step) * step)
    return np.minimum(down, scores)
