"""The batch of a step over all ranks, of which each rank has a part, possibly of another size or empty."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

from xmc_tf.collective.engines import operations


class Batch:
    """A rank's part of the batch of a step.

    Args:
        examples: the number of examples of this rank.
        size: the number of ranks.

    Attributes:
        size: the number of ranks.
        is_weighted: whether the loss has been multiplied by ``share``.
    """

    def __init__(self, examples: tf.Tensor, size: int) -> None:
        self._examples, self.size, self.is_weighted = examples, size, False
        self._share: tf.Tensor | None = None

    @property
    def share(self) -> tf.Tensor:
        """The weight of this rank's loss in the mean over the ranks: 1 if all have the same number of examples."""
        if self._share is None:
            self._share = self.share_of(self._examples, "examples")
        return self._share

    def share_of(self, number: tf.Tensor, what: str) -> tf.Tensor:
        """Return a number of this rank as a multiple of its mean over the ranks; collective.

        Args:
            number: the number.
            what: what is counted, for the name of the exchange.
        """
        number = tf.cast(number, tf.float32)
        return tf.math.divide_no_nan(number * self.size, operations.allreduce_sum(number, f"xmc_tf/batch/{what}"))


_BATCH: ContextVar[Batch | None] = ContextVar("batch", default=None)


def current_batch() -> Batch | None:
    """Return the batch of the step of a Keras model over all ranks in which this is called, if any."""
    return _BATCH.get()


@contextmanager
def step_over(batch: Batch) -> Iterator[None]:
    """Make the block a step over a batch."""
    token = _BATCH.set(batch)
    try:
        yield
    finally:
        _BATCH.reset(token)
