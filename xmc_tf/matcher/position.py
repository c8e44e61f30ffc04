"""How far a level's training is, kept in variables so that a checkpoint holds it with all else."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Trained(NamedTuple):
    """What ``collective.training_state`` asks a model for."""

    variables: Sequence[tf.Variable]
    trainable_variables: Sequence[tf.Variable]
    optimizer: Any


class Position:
    """Steps made, the place in the data, and the best validation so far.

    Steps are counted here and not by the optimizer, which does not count those that overflowed in half precision.
    """

    def __init__(self) -> None:
        with tf.device("/cpu:0"):  # to be read in every step without waiting for a GPU
            # Step, epoch, batches taken of that epoch, validations since the best one.
            self._counts = tf.Variable(tf.zeros([4], tf.int64), trainable=False, name="position")
            self._best = tf.Variable(tf.constant(-np.inf, tf.float64), trainable=False, name="best")

    @property
    def variables(self) -> list[tf.Variable]:
        """What a checkpoint has to hold."""
        return [self._counts, self._best]

    @property
    def step(self) -> int:
        """Steps made."""
        return int(self._counts[0])

    @property
    def epoch(self) -> int:
        """The pass over the documents that the next batch belongs to."""
        return int(self._counts[1])

    @property
    def batch(self) -> int:
        """How many batches of that epoch have been taken."""
        return int(self._counts[2])

    @property
    def best(self) -> float:
        """The best validation so far."""
        return float(self._best)

    def advance(self, epoch: int, batch: int) -> None:
        """Counts a step after which so many batches of the epoch have been taken."""
        counts = self._counts.numpy()
        self._counts.assign([counts[0] + 1, epoch, batch, counts[3]])

    def is_better(self, value: float) -> bool:
        """Takes notice of a validation, and says whether there was none as good."""
        counts, better = self._counts.numpy(), value > self.best
        self._counts.assign([*counts[:3], 0 if better else counts[3] + 1])
        if better:
            self._best.assign(value)
        return better

    def given_up(self, patience: int) -> bool:
        """Whether so many validations have brought nothing; never with a patience of 0 or less."""
        return 0 < patience <= int(self._counts[3])
