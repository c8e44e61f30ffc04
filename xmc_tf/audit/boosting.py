"""Boosted trees that correct a probability: small trees, each with the same question at all nodes of a level."""

from typing import NamedTuple

import numpy as np

from xmc_tf.audit.kernels import gradient_sums

_TREES, _DEPTH, _RATE = 100, 4, 0.1
_BINS = 32
_LEAST_WEIGHT, _SHRINK = 5.0, 5.0


class BoostedTrees(NamedTuple):
    edges: np.ndarray  # float64 [columns, bins - 1]: where the bins of each column start
    columns: np.ndarray  # int64 [trees, depth]: the column of each question
    bins: np.ndarray  # int64 [trees, depth]: values of this bin or a higher one answer yes
    values: np.ndarray  # float64 [trees, 2 ** depth]: what each leaf adds to the log-odds

    @classmethod
    def fit(cls, evidence: np.ndarray, right: np.ndarray, start: np.ndarray) -> "BoostedTrees":
        """Learn from examples to correct log-odds (``start``)."""
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
            values[tree] = _RATE * total / (weights + _SHRINK)
            raw += values[tree, leaf]
        return cls(edges, columns, bins, values)

    def log_odds(self, evidence: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return corrected log-odds."""
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
    """Return the column and the bin that best split all leaves, by gradients and weights; the first of equal ones."""
    above = np.cumsum(sums[:, :, :, ::-1], axis=3)[:, :, :, ::-1]
    below = above[:, :, :, :1] - above
    gain = sum(one[0] ** 2 / (one[1] + _SHRINK) for one in (above, below))
    allowed = (above[1] >= _LEAST_WEIGHT) & (below[1] >= _LEAST_WEIGHT)
    whole = above[0, :, :, :1] ** 2 / (above[1, :, :, :1] + _SHRINK)
    total = np.where(allowed, gain - whole, 0.0).sum(axis=0)
    column, bin_ = np.unravel_index(int(np.argmax(total)), total.shape)
    return int(column), int(bin_)
