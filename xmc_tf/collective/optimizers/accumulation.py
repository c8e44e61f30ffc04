"""The sum of the gradients of several small batches for one step, which saves memory.

Of tables, only gradients of touched rows are kept. Those of replicated variables are sent once per step.
"""

import tensorflow as tf

from xmc_tf.collective.optimizers.gradients import Gradients, RowGradient, merge_rows


class Accumulator(tf.Module):
    """The sum of the gradients since the last step, divided by ``every``, the number of batches in a step."""

    def __init__(self, every: int) -> None:
        super().__init__(name="accumulator")
        self.every = every
        self._replicated: list[tf.Variable] | None = None
        self._rows: list[tf.Variable] = []
        self._values: list[tf.Variable] = []
        with tf.init_scope():
            self.count = tf.Variable(0, dtype=tf.int64, trainable=False, name="count")

    def add(self, gradients: Gradients) -> None:
        """Add the gradients of a batch; the variables and their order must always be the same."""
        if self._replicated is None:
            self._build(gradients)
        assert self._replicated is not None
        first = tf.equal(self.count, 0)
        for held, gradient in zip(self._replicated, gradients.of_variables, strict=True):
            held.assign(tf.where(first, tf.zeros_like(held), held) + gradient / self.every)
        for rows, values, new in zip(self._rows, self._values, gradients.rows, strict=True):
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
        return self.count >= self.every

    def take(self, last: Gradients) -> Gradients:
        """Return the accumulated gradients of the variables and tables of ``last``; the next batch starts a new sum.

        The gradients are not cleared: if an empty value is assigned in a condition, TensorFlow's graph optimizer infers
        that the variable is always empty (world_optimizers.check_accumulation).
        """
        self.count.assign(0)
        rows = [
            RowGradient(one.read_value(), values.read_value())
            for one, values in zip(self._rows, self._values, strict=True)
        ]
        return last._replace(of_variables=[held.read_value() for held in self._replicated or []], rows=rows)

    def _build(self, gradients: Gradients) -> None:
        shapes = [(gradient.shape, gradient.dtype) for gradient in gradients.of_variables]
        widths = [gradient.values.shape[1] for gradient in gradients.rows]
        with tf.init_scope():
            self._replicated = [tf.Variable(tf.zeros(shape, dtype), trainable=False) for shape, dtype in shapes]
            self._rows = [tf.Variable(tf.zeros([0], tf.int64), shape=[None], trainable=False) for _ in widths]
            self._values = [tf.Variable(tf.zeros([0, width]), shape=[None, width], trainable=False) for width in widths]
