"""Dot products of pairs of rows of two matrices, without a copy of the rows for each pair.

Gathering both sides and multiplying them takes gigabytes for a batch of 256 with 500 candidates of width 768. Here,
scores are computed in blocks that fit in the cache, and gradients are products of a dense and a sparse matrix.
"""

from collections.abc import Callable

import tensorflow as tf

# The size of the rows that are gathered at once. Tests lower it.
BLOCK_BYTES = 8 * 2**20


@tf.custom_gradient
def pair_dots(left: tf.Tensor, at_left: tf.Tensor, right: tf.Tensor, at_right: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    """Return ``sum(left[at_left] * right[at_right], axis=1)``; the gradients of both sides are dense."""

    def back(upstream: tf.Tensor | tf.IndexedSlices) -> tuple[tf.Tensor, None, tf.Tensor, None]:
        if isinstance(upstream, tf.IndexedSlices):  # from a gather that reorders the pairs
            upstream = tf.math.unsorted_segment_sum(upstream.values, upstream.indices, tf.size(at_left))
        pairs = tf.SparseTensor(
            tf.stack([tf.cast(at_left, tf.int64), tf.cast(at_right, tf.int64)], axis=1),
            upstream,
            tf.stack([tf.shape(left, tf.int64)[0], tf.shape(right, tf.int64)[0]]),
        )
        of_left = tf.sparse.sparse_dense_matmul(pairs, right)
        of_right = tf.sparse.sparse_dense_matmul(pairs, left, adjoint_a=True)
        return tf.ensure_shape(of_left, left.shape), None, tf.ensure_shape(of_right, right.shape), None

    return _in_blocks(left, at_left, right, at_right), back


def _in_blocks(left: tf.Tensor, at_left: tf.Tensor, right: tf.Tensor, at_right: tf.Tensor) -> tf.Tensor:
    size = max(1, BLOCK_BYTES // (4 * left.shape[1]))
    blocks = tf.maximum(1, -(-tf.size(at_left) // size))

    def dots(number: tf.Tensor) -> tf.Tensor:
        block = slice(number * size, (number + 1) * size)
        return tf.reduce_sum(tf.gather(left, at_left[block]) * tf.gather(right, at_right[block]), axis=1)

    def add(number: tf.Tensor, made: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return number + 1, made.write(number, dots(number))

    made = tf.TensorArray(tf.float32, size=blocks, infer_shape=False, element_shape=[None])
    # Sequential, so that only one block is in memory.
    _, made = tf.while_loop(lambda number, _: number < blocks, add, (0, made), parallel_iterations=1)
    return tf.reshape(made.concat(), tf.shape(at_left))
