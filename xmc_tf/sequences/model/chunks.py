from collections.abc import Callable

import tensorflow as tf

# Scores that are in memory at a time. Tests lower it.
CHUNK_BYTES = 32 * 2**20
LEAST = -1e30  # instead of minus infinity, whose differences are not numbers


@tf.custom_gradient
def log_sum_exp(
    vectors: tf.Tensor, rows: tf.Tensor, offsets: tf.Tensor, excluded: tf.Tensor
) -> tuple[tf.Tensor, Callable]:
    """Return ``log(sum(exp(vectors @ rows.T + offsets)))`` over the rows, ``[n]``; ``LEAST`` without rows.

    The scores are computed in chunks of rows, and again for the exact gradients, which ``offsets`` does not have.
    ``excluded`` are pairs of vector and row that do not count, ``[pairs, 2]``, int32, ordered by row.
    """
    vectors, rows = tf.convert_to_tensor(vectors), tf.convert_to_tensor(rows)
    count = tf.shape(rows)[0]
    excluded = tf.reshape(excluded, [-1, 2]) if excluded.shape.rank == 2 else tf.zeros([0, 2], tf.int32)
    size = tf.maximum(1, tf.cast(CHUNK_BYTES // 4, tf.int32) // tf.maximum(1, tf.shape(vectors)[0]))
    chunks = -(-count // size)

    def scores(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        low, high = number * size, tf.minimum((number + 1) * size, count)
        part = rows[low:high]
        found = tf.matmul(vectors, part, transpose_b=True) + offsets[low:high]
        first, last = tf.searchsorted(excluded[:, 1], tf.stack([low, high])), None
        first, last = first[0], first[1]
        pairs = excluded[first:last] - [[0, low]]
        return tf.tensor_scatter_nd_update(found, pairs, tf.fill([last - first], LEAST)), part

    def add(number: tf.Tensor, most: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        found, _ = scores(number)
        new = tf.maximum(most, tf.reduce_max(found, axis=1))
        total = total * tf.exp(most - new) + tf.reduce_sum(tf.exp(found - new[:, None]), axis=1)
        return number + 1, new, total

    begin = (0, tf.fill(tf.shape(vectors)[:1], LEAST), tf.zeros(tf.shape(vectors)[:1]))
    # Sequential, so that only one chunk is in memory.
    _, most, total = tf.while_loop(lambda number, *_: number < chunks, add, begin, parallel_iterations=1)
    result = tf.maximum(most + tf.math.log(tf.maximum(total, 1e-37)), LEAST)

    def back(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, None, None]:
        def add_gradient(
            number: tf.Tensor, of_vectors: tf.Tensor, of_rows: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            found, part = scores(number)
            share = tf.exp(found - result[:, None]) * upstream[:, None]
            of_rows = of_rows.write(number, tf.matmul(share, vectors, transpose_a=True))
            return number + 1, of_vectors + tf.matmul(share, part), of_rows

        pieces = tf.TensorArray(tf.float32, size=chunks, infer_shape=False, element_shape=[None, rows.shape[1]])
        _, of_vectors, pieces = tf.while_loop(
            lambda number, *_: number < chunks, add_gradient, (0, tf.zeros_like(vectors), pieces), parallel_iterations=1
        )
        of_rows = tf.cond(chunks > 0, pieces.concat, lambda: tf.zeros_like(rows))
        return of_vectors, tf.ensure_shape(of_rows, rows.shape), None, None

    return result, back
