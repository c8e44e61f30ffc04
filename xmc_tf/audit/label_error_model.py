"""Estimate the probability of labels from the evidence for all pairs of a document and a label.

Two logistic regressions use the same evidence. The first compares the labels of documents with random labels, to find
wrong labels. The second compares them with all other labels that some evidence suggests, to find missing labels.

The second is fitted first. Its residuals show how reliably each label is assigned where it is likely, and how
completely each document is labelled: if few of the documents that a label fits have it, its absence means little. Both
regressions are then fitted with this evidence too. Finally, boosted trees correct the high probabilities of the second.
"""

from typing import NamedTuple

import numpy as np

from xmc_tf.audit.evidence import PairEvidence
from xmc_tf.audit.kernels import gradient_sums
from xmc_tf.fusion.logistic import fit_logistic

_KNOTS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.97)  # quantiles of the labels that documents have
_PENALTY = 3.0
_MOST = 60_000  # examples of each kind
_BLOCK = 200_000  # pairs at a time, to bound memory
_SHRUNK = 3.0
_LIKELY, _SURE, _USUAL = 0.6, 0.9, 0.85  # probabilities
_MOST_ODDS = 4.0
_FOLDS = 3
SHARE_WRONG = 0.03  # assumed share of random labels
_TREES, _DEPTH, _RATE = 100, 4, 0.1
_BINS = 32
_LEAST_WEIGHT, _LEAF_SHRINK = 5.0, 5.0


def estimate_errors(found: PairEvidence, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two probabilities per pair, float32: that the document should have the label; that the label is random."""
    rng = np.random.default_rng([seed, 0x646F756274])
    given, other = found.has, ~found.has & ~found.random
    examples = [_some(np.flatnonzero(one), rng) for one in (given, other, found.random)]
    columns = found.columns
    likely = _Curve.fit(columns, examples[0], examples[1], given.sum(), other.sum())
    first = likely.probability(columns)
    rest = np.where(found.random, 0.0, given - first)
    weight = np.where(found.random, 0.0, first * (1.0 - first) + 0.02)
    habits = [_others(place, rest, weight) for place in (found.pairs.labels, found.pairs.rows)]
    columns = np.column_stack([columns, *habits]).astype(np.float32)
    has = _Curve.fit(columns, examples[0], examples[1], given.sum(), other.sum()).probability(columns)
    by_chance = _Curve.fit(columns, examples[0], examples[2], 1.0 - SHARE_WRONG, SHARE_WRONG)
    return _corrected(found, columns, has), 1.0 - by_chance.probability(columns)


def _corrected(found: PairEvidence, columns: np.ndarray, has: np.ndarray) -> np.ndarray:
    """Correct the high probabilities with boosted trees, which are trained without the documents that they correct."""
    likely = np.flatnonzero((has > _LIKELY) & ~found.random)
    probability, right = has[likely].astype(np.float64), found.has[likely]
    rows, labels = found.pairs.rows[likely], found.pairs.labels[likely]
    start = np.minimum(np.log(probability / (1.0 - probability + 1e-9)), _MOST_ODDS)
    shares = [
        _share_of_others(place, right, probability > least) for place in (labels, rows) for least in (_LIKELY, _SURE)
    ]
    evidence = np.column_stack([columns[likely], start, *shares]).astype(np.float32)
    fold, raw = rows % _FOLDS, start.copy()
    for number in range(_FOLDS):
        own = fold == number
        if own.any() and len(np.unique(right[~own])) == 2:
            trees = BoostedTrees.fit(evidence[~own], right[~own], start[~own])
            raw[own] = trees.log_odds(evidence[own], start[own])
    out = has.copy()
    out[likely] = 1.0 / (1.0 + np.exp(-raw))
    return out


def _share_of_others(place: np.ndarray, right: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Return, per pair, the smoothed share of right ones among other counted pairs of the same label (or document)."""
    hits, every = np.bincount(place, counted & right), np.bincount(place, counted)
    return (hits[place] - (counted & right) + _USUAL * _SHRUNK) / (every[place] - counted + _SHRUNK)


def _some(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rows if len(rows) <= _MOST else np.sort(rng.choice(rows, _MOST, replace=False))


def _others(place: np.ndarray, rest: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return, per pair, the residuals of other pairs of its label (or document), summed and divided by their weight."""
    total, weights = np.bincount(place, rest), np.bincount(place, weight)
    return (total[place] - rest) / (weights[place] - weight + _SHRUNK)


class _Curve(NamedTuple):
    """A logistic regression on piecewise linear functions of the columns."""

    mean: np.ndarray
    scale: np.ndarray
    knots: list[np.ndarray]
    weights: np.ndarray
    shift: float

    @classmethod
    def fit(cls, columns: np.ndarray, yes: np.ndarray, no: np.ndarray, nr_yes: float, nr_no: float) -> "_Curve":
        """Fit to the rows ``yes`` and ``no``, then shift the log-odds to the true ratio of ``nr_yes`` to ``nr_no``."""
        sample = columns[yes].astype(np.float64)
        mean, scale = sample.mean(axis=0), np.maximum(sample.std(axis=0), 1e-9)
        knots = [np.unique(one) for one in np.quantile((sample - mean) / scale, _KNOTS, axis=0).T]
        shift = float(np.log(nr_yes / max(nr_no, 1e-9)) - np.log(len(yes) / max(len(no), 1)))
        curve = cls(mean, scale, knots, np.zeros(0), shift)
        rows = np.concatenate([yes, no])
        bent = curve._bent(columns[rows])
        right = np.arange(len(rows)) < len(yes)
        return curve._replace(weights=fit_logistic(bent, right, np.zeros(bent.shape[1]), _PENALTY))

    def probability(self, columns: np.ndarray) -> np.ndarray:
        """Return the fitted probability of each row of ``columns``."""
        out = np.empty(len(columns), np.float32)
        for begin in range(0, len(columns), _BLOCK):
            raw = self._bent(columns[begin : begin + _BLOCK]) @ self.weights + self.shift
            out[begin : begin + _BLOCK] = 1.0 / (1.0 + np.exp(-np.clip(raw, -30.0, 30.0)))
        return out

    def _bent(self, columns: np.ndarray) -> np.ndarray:
        scaled = (columns - self.mean) / self.scale
        parts = [np.ones(len(scaled))]
        for place, knots in enumerate(self.knots):
            parts += [scaled[:, place], *(np.maximum(scaled[:, place] - knot, 0.0) for knot in knots)]
        return np.column_stack(parts)


class BoostedTrees(NamedTuple):
    """Small trees that correct log-odds. All nodes at the same level of a tree ask the same question."""

    edges: np.ndarray  # float64 [columns, bins - 1]: where the bins of each column start
    columns: np.ndarray  # int64 [trees, depth]: the column of each question
    bins: np.ndarray  # int64 [trees, depth]: values of this bin or a higher one answer yes
    values: np.ndarray  # float64 [trees, 2 ** depth]: what each leaf adds to the log-odds

    @classmethod
    def fit(cls, evidence: np.ndarray, right: np.ndarray, start: np.ndarray) -> "BoostedTrees":
        """Fit trees that correct the log-odds ``start``."""
        edges = np.quantile(evidence.astype(np.float64), np.arange(1, _BINS) / _BINS, axis=0).T
        binned = _binned(evidence, edges)
        raw = start.astype(np.float64).copy()
        columns, bins = np.zeros((_TREES, _DEPTH), np.int64), np.zeros((_TREES, _DEPTH), np.int64)
        values = np.zeros((_TREES, 1 << _DEPTH))
        for tree in range(_TREES):
            probability = 1.0 / (1.0 + np.exp(-raw))
            gradient, weight = right - probability, probability * (1.0 - probability)
            leaf = np.zeros(len(raw), np.int64)
            for level in range(_DEPTH):
                sums = gradient_sums(binned, leaf, gradient, weight, 1 << level, _BINS)
                columns[tree, level], bins[tree, level] = _best(sums)
                leaf = 2 * leaf + (binned[:, columns[tree, level]] >= bins[tree, level])
            size = 1 << _DEPTH
            total, weights = (np.bincount(leaf, one, minlength=size) for one in (gradient, weight))
            values[tree] = _RATE * total / (weights + _LEAF_SHRINK)
            raw += values[tree, leaf]
        return cls(edges, columns, bins, values)

    def log_odds(self, evidence: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return the corrected log-odds."""
        binned, raw = _binned(evidence, self.edges), start.astype(np.float64).copy()
        for columns, bins, values in zip(self.columns, self.bins, self.values, strict=True):
            leaf = np.zeros(len(raw), np.int64)
            for column, bin_ in zip(columns, bins, strict=True):
                leaf = 2 * leaf + (binned[:, column] >= bin_)
            raw += values[leaf]
        return raw


def _binned(evidence: np.ndarray, edges: np.ndarray) -> np.ndarray:
    out = np.empty(evidence.shape, np.uint8)
    for column, own in enumerate(edges):
        out[:, column] = np.searchsorted(own, evidence[:, column].astype(np.float64), side="right")
    return out


def _best(sums: np.ndarray) -> tuple[int, int]:
    """Return the column and bin at which splitting every leaf gains most in total. Ties go to the first."""
    above = np.cumsum(sums[:, :, :, ::-1], axis=3)[:, :, :, ::-1]
    below = above[:, :, :, :1] - above
    gain = sum(one[0] ** 2 / (one[1] + _LEAF_SHRINK) for one in (above, below))
    allowed = (above[1] >= _LEAST_WEIGHT) & (below[1] >= _LEAST_WEIGHT)
    whole = above[0, :, :, :1] ** 2 / (above[1, :, :, :1] + _LEAF_SHRINK)
    total = np.where(allowed, gain - whole, 0.0).sum(axis=0)
    column, bin_ = np.unravel_index(int(np.argmax(total)), total.shape)
    return int(column), int(bin_)
