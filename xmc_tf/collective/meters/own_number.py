"""Numbers that graphs keep for this process alone: counters and clocks of collectives."""

from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf


def own_number(dtype: tf.DType) -> tf.Variable:
    """Return a zero on the CPU, for graphs to change; not replicated, not trained.

    It is made in a thread of its own, in which nothing is traced: a function that makes variables while it is traced,
    even outside of its graph, is traced a second time.

    Args:
        dtype: of the number.
    """

    def made() -> tf.Variable:
        with tf.device("/cpu:0"):
            return tf.Variable(0, dtype=dtype, trainable=False)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(made).result()
