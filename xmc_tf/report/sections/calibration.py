"""Calibration: are labels with a score of 0.8 right in 80 % of all cases?"""

from dataclasses import dataclass

import numpy as np

from xmc_tf.report.pairs import Pairs

_BINS = 10
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Bin:
    """The predicted labels with scores in one range, which includes its lower end."""

    low: float
    high: float
    count: int
    mean_score: float | None
    share_correct: float | None


@dataclass(frozen=True)
class Calibration:
    applies: bool  # all scores are between 0 and 1
    bins: tuple[Bin, ...] = ()
    error: float | None = None  # expected calibration error
    bias: float | None = None  # positive: scores are too high


def measure_calibration(pairs: Pairs, which: np.ndarray | None = None) -> Calibration:
    """Compare scores with the share of true labels, of all pairs or of those of a mask."""
    scores, correct = pairs.scores, pairs.correct
    if which is not None:
        scores, correct = scores[which], correct[which]
    if not len(scores) or scores.min() < -_ROUNDING or scores.max() > 1 + _ROUNDING:
        return Calibration(applies=False)
    place = np.clip((scores * _BINS).astype(np.int64), 0, _BINS - 1)
    count = np.bincount(place, minlength=_BINS)
    total_score = np.bincount(place, scores, _BINS)
    total_correct = np.bincount(place, correct.astype(np.float64), _BINS)
    bins = tuple(
        Bin(
            number / _BINS,
            (number + 1) / _BINS,
            int(count[number]),
            float(total_score[number] / count[number]) if count[number] else None,
            float(total_correct[number] / count[number]) if count[number] else None,
        )
        for number in range(_BINS)
    )
    return Calibration(
        applies=True,
        bins=bins,
        error=float(np.abs(total_score - total_correct).sum() / len(scores)),
        bias=float((scores.sum() - correct.sum()) / len(scores)),
    )
