"""Loss scaling for half precision: the loss is multiplied so that small gradients do not vanish.

The scale doubles after many finite steps, and halves when a gradient overflows; such a step is skipped. All ranks agree
on overflow (``Gradients.squares_and_finiteness``), so their scales stay equal.
"""

import tensorflow as tf

# fp32 ends below 2^128; larger scales would turn every loss into infinity.
_LARGEST = 2.0**100


class LossScale(tf.Module):
    """The loss scale, which doubles after ``growth_steps`` consecutive finite steps; with None, it is constant."""

    def __init__(self, initial: float = 2.0**15, growth_steps: int | None = 2000) -> None:
        super().__init__(name="loss_scale")
        self._growth_steps = growth_steps
        with tf.init_scope():
            self.value = tf.Variable(initial, dtype=tf.float32, trainable=False, name="value")
            self.good_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="good_steps")

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        return loss * tf.cast(self.value, loss.dtype)

    def update(self, finite: tf.Tensor) -> None:
        """Update the scale after a step; ``finite`` must be the same on all ranks."""
        if self._growth_steps is None:
            return
        good = tf.where(finite, self.good_steps + 1, tf.zeros([], tf.int64))
        grow = good >= self._growth_steps
        larger = tf.where(grow, tf.minimum(self.value * 2.0, _LARGEST), self.value)
        self.value.assign(tf.where(finite, larger, tf.maximum(self.value / 2.0, 1.0)))
        self.good_steps.assign(tf.where(grow, tf.zeros([], tf.int64), good))
