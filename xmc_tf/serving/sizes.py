"""Few sizes in place of many: TensorFlow's kernels keep a compiled program for every size that they have seen.

A transformer's products of matrices are compiled for the number of their rows (by oneDNN, on processors). That takes
half a megabyte a size, and texts have as many sizes as lengths: 40 MB after two hundred short ones.
"""

import tensorflow as tf

_LEAST = 8
_STEPS = [_LEAST << i for i in range(16)]
_STEPS_A_SIZE = 16


def rounded_up(count: tf.Tensor) -> tf.Tensor:
    """The next size: of eights up to 128, above it an eighth more at most.

    Example:
        >>> [int(rounded_up(tf.constant(n))) for n in (0, 1, 28, 128, 130, 1800)]
        [0, 8, 32, 128, 144, 1920]

    Args:
        count: int32, a number.
    """
    steps = tf.constant(_STEPS, tf.int32)
    step = tf.reduce_max(tf.where(count > _STEPS_A_SIZE * steps, 2 * steps, _LEAST))
    return (count + step - 1) // step * step
