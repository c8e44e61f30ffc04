"""Gradients of several small batches added up before a step: a large batch on little memory.

Of a table only the touched rows are held, not a second shard. Nothing travels for replicated variables until the step.
"""

from collections.abc import Sequence

import tensorflow as tf

from xmc_tf.collective.optimizers.gradients import RowGradient, merge_rows


class Accumulator(tf.Module):
    """Holds the sum of the gradients since the last step.

    Args:
        every: batches in a step; the gradient of the step is their mean.
    """

    def __init__(self, every: int) -> None:
        super().__init__(name="accumulator")
        self.every = every
        self._replicated: list[tf.Variable] | None = None
        self._rows: list[tf.Variable] = []
        self._values: list[tf.Variable] = []
        with tf.init_scope():
            self.count = tf.Variable(0, dtype=tf.int64, trainable=False, name="count")

    def add(self, replicated: Sequence[tf.Tensor], row_gradients: Sequence[RowGradient]) -> None:
        """Add one batch's gradients, always of the same variables in the same order."""
        if self._replicated is None:
            self._build(replicated, row_gradients)
        assert self._replicated is not None
        first = tf.equal(self.count, 0)
        for held, gradient in zip(self._replicated, replicated, strict=True):
            held.assign(tf.where(first, tf.zeros_like(held), held) + gradient / self.every)
        for rows, values, new in zip(self._rows, self._values, row_gradients, strict=True):
            kept = tf.where(first, 0, tf.size(rows))
            both = merge_rows(
                RowGradient(
                    tf.concat([rows[:kept], tf.cast(new.rows, tf.int64)], axis=0),
                    tf.concat([values[:kept], new.values / self.every], axis=0),
                )
            )
            rows.assign(both.rows)
            values.assign(both.values)
        self.count.assign_add(1)

    def full(self) -> tf.Tensor:
        """Return whether it is time for the step."""
        return self.count >= self.every

    def take(self) -> tuple[list[tf.Tensor], list[RowGradient]]:
        """Gives what is held; the next batch begins again.

        What is held is not cleared: from the assignment of something empty inside a condition TensorFlow's graph
        optimizer concludes that it is always empty (world_optimizers.check_accumulation).
        """
        self.count.assign(0)
        return [held.read_value() for held in self._replicated or []], [
            RowGradient(rows.read_value(), values.read_value())
            for rows, values in zip(self._rows, self._values, strict=True)
        ]

    def _build(self, replicated: Sequence[tf.Tensor], row_gradients: Sequence[RowGradient]) -> None:
        shapes = [(gradient.shape, gradient.dtype) for gradient in replicated]
        widths = [gradient.values.shape[1] for gradient in row_gradients]
        with tf.init_scope():
            self._replicated = [tf.Variable(tf.zeros(shape, dtype), trainable=False) for shape, dtype in shapes]
            self._rows = [tf.Variable(tf.zeros([0], tf.int64), shape=[None], trainable=False) for _ in widths]
            self._values = [tf.Variable(tf.zeros([0, width]), shape=[None, width], trainable=False) for width in widths]
