"""The tokens of a batch as rows of one matrix without padding, in TensorFlow."""

import tensorflow as tf

from xmc_tf.encoder.network.attention import Layout

# TensorFlow's kernels keep a compiled program for every number of rows (on CPUs, oneDNN's matrix products): half a
# megabyte per text length, 40 MB after two hundred short texts. So batch sizes are rounded to a few sizes.
_LEAST = 8
_STEPS = [_LEAST << i for i in range(16)]
_STEPS_PER_DOUBLING = 16


def rounded_up(count: tf.Tensor) -> tf.Tensor:
    """Round up to a multiple of 8 if the count is at most 128, otherwise by at most an eighth."""
    steps = tf.constant(_STEPS, tf.int32)
    step = tf.reduce_max(tf.where(count > _STEPS_PER_DOUBLING * steps, 2 * steps, _LEAST))
    return (count + step - 1) // step * step


class PackedLayout(Layout):
    """A layout in which layers compute only the rows of tokens, not of padding."""

    def __init__(self, mask: tf.Tensor, rounded: bool) -> None:
        super().__init__(tf, mask)
        # The first token always counts, so that there is something to compute.
        first = tf.one_hot(tf.zeros_like(mask[:, 0]), self.width, True, False)
        here = tf.reshape((mask > 0) | first, [-1])
        flat = tf.cast(tf.where(here)[:, 0], tf.int32)
        self._real: tf.Tensor | None = None
        if rounded:
            # Additional rows are copies of the first token, and nothing reads them.
            count = tf.size(flat)
            more = rounded_up(count) - count
            flat = tf.pad(flat, [[0, more]])
            self._real = tf.cast(tf.range(count + more) < count, tf.float32)[:, None]
        self.flat = flat
        self.positions = flat % self.width
        # The row of each place by document; any row for padding, because it is ignored.
        self._rows = tf.maximum(tf.cumsum(tf.cast(here, tf.int32)) - 1, 0)
        self._there = tf.cast(here, tf.float32)[:, None]

    def pack(self, places: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def packed(places: tf.Tensor) -> tuple:
            return tf.gather(places, self.flat), lambda up: tf.gather(up, self._rows) * tf.cast(self._there, up.dtype)

        return packed(places)

    def unpack(self, rows: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def unpacked(rows: tf.Tensor) -> tuple:
            def gradient(up: tf.Tensor) -> tf.Tensor:
                down = tf.gather(up, self.flat)
                return down if self._real is None else down * tf.cast(self._real, up.dtype)

            return tf.gather(rows, self._rows), gradient

        return unpacked(rows)
