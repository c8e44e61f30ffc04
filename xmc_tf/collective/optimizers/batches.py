"""The batch of a step over all ranks, of which each rank has a part, possibly of another size or empty."""

from contextlib import AbstractContextManager
from contextvars import ContextVar

import tensorflow as tf

from xmc_tf.collective.blocks import set_in_block
from xmc_tf.collective.engines import operations


class BatchShare:
    """A rank's part of the batch of a step."""

    def __init__(self, examples: tf.Tensor, size: int) -> None:
        self._examples, self.size, self.is_weighted = tf.cast(examples, tf.float64), size, False
        self._over_ranks: tf.Tensor | None = None

    @property
    def weight(self) -> tf.Tensor:
        """This rank's weight in the mean of the ranks' losses: 1 if all have equally many examples; collective."""
        return tf.cast(tf.math.divide_no_nan(self._examples * self.size, self._sums[0]), tf.float32)

    @property
    def is_even(self) -> tf.Tensor:
        """Whether all ranks have the same number of examples; collective."""
        return tf.equal(self._sums[1] * self.size, tf.square(self._sums[0]))

    def weight_by(self, number: tf.Tensor, what: str) -> tf.Tensor:
        """Return a number of this rank as a multiple of its mean over the ranks; collective."""
        number = tf.cast(number, tf.float32)
        return tf.math.divide_no_nan(number * self.size, operations.allreduce_sum(number, f"xmc_tf/batch/{what}"))

    @property
    def _sums(self) -> tf.Tensor:
        """The sums over the ranks of the numbers of examples, and of their squares; collective on first use."""
        if self._over_ranks is None:
            own = tf.stack([self._examples, tf.square(self._examples)])
            self._over_ranks = operations.allreduce_sum(own, "xmc_tf/batch/examples")
        return self._over_ranks


_BATCH: ContextVar[BatchShare | None] = ContextVar("batch", default=None)


def current_batch() -> BatchShare | None:
    """Return the batch of the step over all ranks in which this is called, if any."""
    return _BATCH.get()


def step_over(batch: BatchShare) -> AbstractContextManager[None]:
    return set_in_block(_BATCH, batch)
