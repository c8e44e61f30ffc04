"""Statistics of all predicted (document, label) pairs: thresholds, calibration, and the labels that documents get."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_DIGITS = 3  # significant digits of a threshold
_CURVE_POINTS = 200
_ENOUGH = 20  # minimum number of labels for a point of the curve, because precision of fewer is random
_BINS = 10
_ROUNDING = 1e-6  # by which scores may be outside of 0 to 1


@dataclass(frozen=True, eq=False)
class Pairs:
    """All predicted (document, label) pairs, with their scores and whether they are true."""

    documents: np.ndarray  # of each pair, ascending
    labels: np.ndarray
    scores: np.ndarray
    correct: np.ndarray
    true: int  # true pairs, predicted or not
    nr_documents: int
    nr_labels: int

    @classmethod
    def of(cls, truth: csr_matrix, predicted: csr_matrix) -> "Pairs":
        """Return the pairs of a prediction. ``truth`` must be a result of ``as_truth``."""
        scores = predicted.tocsr(copy=True)
        scores.sum_duplicates()
        documents = np.repeat(np.arange(scores.shape[0], dtype=np.int64), np.diff(scores.indptr))
        keys = documents * scores.shape[1] + scores.indices
        true_rows = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr))
        true_keys = true_rows * truth.shape[1] + truth.indices
        place = np.searchsorted(true_keys, keys)
        correct = np.zeros(len(keys), np.bool_)
        inside = place < len(true_keys)
        correct[inside] = true_keys[place[inside]] == keys[inside]
        return cls(documents, scores.indices, scores.data.astype(np.float64), correct, truth.nnz, *scores.shape)

    def chosen(self, which: np.ndarray) -> csr_matrix:
        """Return the pairs selected by a mask as a 0/1 matrix of documents × labels."""
        ones = np.ones(int(which.sum()), np.float32)
        shape = (self.nr_documents, self.nr_labels)
        return csr_matrix((ones, (self.documents[which], self.labels[which])), shape=shape)

    @property
    def best_of_documents(self) -> np.ndarray:
        """A mask of the highest-scoring pair of each document. Ties go to the label with the lowest number."""
        order = np.lexsort((self.labels, -self.scores, self.documents))
        first = np.ones(len(order), np.bool_)
        first[1:] = self.documents[order][1:] != self.documents[order][:-1]
        mask = np.zeros(len(order), np.bool_)
        mask[order[first]] = True
        return mask


@dataclass(frozen=True)
class Point:
    """Precision, recall and F1 if all labels with a score of at least ``threshold`` are assigned."""

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
    """Measure every distinct threshold. Thresholds are scores, rounded down to three significant digits."""
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
    values = (thresholds, precision, recall, f1, accepted / pairs.nr_documents, documents / pairs.nr_documents)

    def point(place: int) -> Point:
        return Point(*(float(one[place]) for one in values))

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
    """Round each score down to three significant digits."""
    scores = np.asarray(scores, np.float64)
    size = np.abs(scores)
    exponent = np.floor(np.log10(size, out=np.zeros_like(size), where=size > 0)).astype(np.int64)
    # Dividing by 1000 is exact to the last digit, multiplying by 0.001 is not.
    decimals = np.clip(_DIGITS - 1 - exponent, -300, 300)
    step = 10.0 ** np.abs(decimals)
    down = np.where(decimals >= 0, np.floor(scores * step) / step, np.floor(scores / step) * step)
    return np.minimum(down, scores)


@dataclass(frozen=True)
class Bin:
    """The predicted labels whose scores are in one range. The range includes its lower end."""

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
    """Compare scores with the share of true labels, over all pairs or over those selected by the mask ``which``."""
    scores, correct = pairs.scores, pairs.correct
    if which is not None:
        scores, correct = scores[which], correct[which]
    if not len(scores) or scores.min() < -_ROUNDING or scores.max() > 1 + _ROUNDING:
        return Calibration(applies=False)
    place = np.clip((scores * _BINS).astype(np.int64), 0, _BINS - 1)
    count = np.bincount(place, minlength=_BINS)
    total_score = np.bincount(place, scores, _BINS)
    total_correct = np.bincount(place, correct.astype(np.float64), _BINS)
    bins = []
    for number, size in enumerate(count.tolist()):
        score, share = (float(total[number] / size) if size else None for total in (total_score, total_correct))
        bins.append(Bin(number / _BINS, (number + 1) / _BINS, size, score, share))
    error = float(np.abs(total_score - total_correct).sum() / len(scores))
    return Calibration(True, tuple(bins), error, float((scores.sum() - correct.sum()) / len(scores)))


@dataclass(frozen=True, eq=False)
class Decisions:
    """The labels that documents get by one rule, as 0/1 matrices of documents × labels."""

    threshold: float | None  # None: each document gets its best label
    assigned: csr_matrix
    right: csr_matrix
    missed: csr_matrix
    wrong: csr_matrix

    @property
    def rule(self) -> str:
        if self.threshold is None:
            return "each document gets its best label"
        return f"a document gets all labels with a score of at least {self.threshold:g}, the threshold with the best F1"


def decide(truth: csr_matrix, pairs: Pairs, thresholds: Thresholds) -> Decisions:
    """Assign the best label if documents have one label each, else all labels that reach the best threshold by F1."""
    if int(np.diff(truth.indptr).max(initial=0)) == 1:
        threshold, which = None, pairs.best_of_documents
    else:
        threshold = thresholds.best.threshold if thresholds.best else 0.0
        which = pairs.scores >= threshold
    right = pairs.chosen(which & pairs.correct)
    missed = (truth - right).tocsr()
    missed.eliminate_zeros()
    return Decisions(threshold, pairs.chosen(which), right, missed, pairs.chosen(which & ~pairs.correct))
