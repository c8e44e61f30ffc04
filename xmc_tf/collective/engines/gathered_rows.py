"""The rows of all ranks' batches, for losses among the examples of a batch."""

from typing import NamedTuple

import tensorflow as tf

from xmc_tf.collective.engines import operations


class GatheredRows(NamedTuple):
    """The rows of all ranks, in the order of the ranks, and the positions of this rank's rows among them."""

    rows: tf.Tensor
    positions: tf.Tensor


def gather_rows(tensor: tf.Tensor, size: int, rank: int, name: str) -> GatheredRows:
    """Return the rows of all ranks, which may have different numbers of them; differentiable, collective."""
    own = tf.shape(tensor)[:1]
    if size == 1:
        return GatheredRows(tensor, tf.range(own[0]))
    counts = tf.ensure_shape(operations.allgather(own, f"{name}/counts"), [size])

    @tf.custom_gradient
    def gathered(tensor: tf.Tensor) -> tuple[tf.Tensor, object]:
        def back(upstream: tf.Tensor) -> tf.Tensor:
            # The loss of each rank depends on these rows: they get the sum of what all ranks send back.
            parts, _ = operations.alltoall(tf.convert_to_tensor(upstream), counts, f"{name}/gradient")
            shape = tf.concat([[size], tf.shape(tensor)], axis=0)
            return tf.reduce_sum(tf.reshape(parts, shape), axis=0)

        return operations.allgather(tensor, name), back

    return GatheredRows(gathered(tensor), tf.range(own[0]) + tf.reduce_sum(counts[:rank]))
