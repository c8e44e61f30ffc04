"""The position in a level's training, in variables, so that checkpoints contain it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class TrainedVariables(NamedTuple):
    """The attributes of a model that ``collective.checkpoints.training_state`` reads."""

    variables: Sequence[tf.Variable]
    trainable_variables: Sequence[tf.Variable]
    optimizer: Any


class Position:
    """The number of steps, the position in the data, and the best validation so far.

    Steps are counted here, because the optimizer does not count those that overflowed in half precision.
    """

    def __init__(self) -> None:
        with tf.device("/cpu:0"):  # every step reads them, and should not wait for a GPU
            # Step, epoch, batches taken in that epoch, validations since the best one.
            self._counts = tf.Variable(tf.zeros([4], tf.int64), trainable=False, name="position")
            self._best = tf.Variable(tf.constant(-np.inf, tf.float64), trainable=False, name="best")

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables to save in checkpoints."""
        return [self._counts, self._best]

    @property
    def step(self) -> int:
        """Number of steps."""
        return int(self._counts[0])

    @property
    def epoch(self) -> int:
        """Number of the pass over the documents that the next batch belongs to."""
        return int(self._counts[1])

    @property
    def batch(self) -> int:
        """Number of batches taken in that epoch."""
        return int(self._counts[2])

    @property
    def best(self) -> float:
        """The best validation so far."""
        return float(self._best)

    def advance(self, epoch: int, batch: int) -> None:
        """Count a step, after which ``batch`` batches of the epoch have been taken."""
        counts = self._counts.numpy()
        self._counts.assign([counts[0] + 1, epoch, batch, counts[3]])

    def is_better(self, value: float) -> bool:
        """Record a validation; return whether it is the best so far."""
        counts, better = self._counts.numpy(), value > self.best
        self._counts.assign([*counts[:3], 0 if better else counts[3] + 1])
        if better:
            self._best.assign(value)
        return better

    def given_up(self, patience: int) -> bool:
        """Return whether the last ``patience`` validations did not improve; never with a patience of 0 or less."""
        return 0 < patience <= int(self._counts[3])
