"""Rounding of batch sizes, because TensorFlow's kernels keep a compiled program for every size.

The matrix products of a transformer are compiled for their number of rows (by oneDNN on CPUs). That takes half a
megabyte per size, and each text length is a size: 40 MB after two hundred short texts.
"""

import tensorflow as tf

_LEAST = 8
_STEPS = [_LEAST << i for i in range(16)]
_STEPS_PER_DOUBLING = 16


def rounded_up(count: tf.Tensor) -> tf.Tensor:
    """Return the next size: a multiple of eight up to 128; above, at most an eighth larger.

    Example:
        >>> [int(rounded_up(tf.constant(n))) for n in (0, 1, 28, 128, 130, 1800)]
        [0, 8, 32, 128, 144, 1920]

    Args:
        count: int32 number.
    """
    steps = tf.constant(_STEPS, tf.int32)
    step = tf.reduce_max(tf.where(count > _STEPS_PER_DOUBLING * steps, 2 * steps, _LEAST))
    return (count + step - 1) // step * step
