"""Variables of graphs that belong to this process alone: counters and clocks of collectives."""

from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf


def local_variable(dtype: tf.DType) -> tf.Variable:
    """Return a scalar variable on the CPU, initially 0, that is neither replicated nor trained.

    It is made in a new thread, in which nothing is traced: a function that makes variables during tracing, even outside
    of its graph, is traced a second time.

    Args:
        dtype: the variable's type.
    """

    def made() -> tf.Variable:
        with tf.device("/cpu:0"):
            return tf.Variable(0, dtype=dtype, trainable=False)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(made).result()
