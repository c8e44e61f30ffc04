"""Samples of items for a sampled softmax: the same on all ranks, drawn with replacement."""

from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf


class Sample(NamedTuple):
    items: tf.Tensor  # int64, possibly repeated
    log_expected: tf.Tensor  # logarithm of how often each is expected in the sample


class LogUniform:
    """The distribution ``P(item) = log((item + 2) / (item + 1)) / log(items + 1)``, for items numbered by frequency."""

    def __init__(self, items: int, count: int) -> None:
        self.items, self.count = items, count

    def draw(self, seed: tf.Tensor) -> Sample:
        """Return the sample of a seed: two integers, such as the training's seed and the step."""
        drawn = tf.random.stateless_uniform([self.count], seed, dtype=tf.float64, alg="philox")
        found = tf.cast(tf.exp(drawn * np.log(self.items + 1.0)), tf.int64) - 1
        found = tf.clip_by_value(found, 0, self.items - 1)
        share = tf.math.log1p(1.0 / (tf.cast(found, tf.float64) + 1.0)) / np.log(self.items + 1.0)
        return Sample(found, tf.cast(tf.math.log(share * self.count), tf.float32))


class ByFrequency:
    """The distribution with probabilities proportional to a power of the items' counts."""

    def __init__(self, counts: np.ndarray, count: int, power: float = 0.75) -> None:
        self.count = count
        shares = np.maximum(np.asarray(counts, np.float64), 1e-9) ** power
        self._ends = tf.constant(np.cumsum(shares / shares.sum()), tf.float64)
        self._log_expected = tf.constant(np.log(shares / shares.sum() * count), tf.float32)

    def draw(self, seed: tf.Tensor) -> Sample:
        """Return the sample of a seed: two integers, such as the training's seed and the step."""
        drawn = tf.random.stateless_uniform([self.count], seed, dtype=tf.float64, alg="philox")
        found = tf.searchsorted(self._ends, drawn, side="right", out_type=tf.int64)
        found = tf.minimum(found, tf.size(self._ends, tf.int64) - 1)
        return Sample(found, tf.gather(self._log_expected, found))


Sampler: TypeAlias = LogUniform | ByFrequency
