"""Losses of every instance against every row of a table, computed where the rows are.

Each rank multiplies the vectors of all ranks by its own rows and computes its share of each instance's loss. It sends
only vectors and their gradients: 2·B·dim numbers to each other rank, for any number of rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from xmc_tf.collective.tables.row_requests import by_owner, checked_ids, exchange_ids
from xmc_tf.collective.tables.serving_tables import serving_or_sharded
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.collective.tables.wire import WireFormat, check_format, exchange

# Scores, targets (1 for positives, otherwise 0) and weights, all [B, rows] -> losses in that shape.
RowLoss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


class EveryRow:
    """A loss of instances against all rows: ``loss(vectors @ table.T, positives)`` summed over the rows; collective."""

    def __init__(self, table: ShardedTable, wire: WireFormat = "fp32") -> None:
        check_format(wire)
        self.table, self.wire = table, wire

    @tf.autograph.experimental.do_not_convert
    def losses(
        self,
        vectors: tf.Tensor,
        positives: tf.RaggedTensor,
        loss: RowLoss,
        weights: tf.RaggedTensor | None = None,
    ) -> tf.Tensor:
        """Return the sum of each instance's losses over all rows of the table, ``[B]``.

        ``positives`` has each positive row of an instance once; ``weights`` are those of the positives (others weigh
        1).
        """
        table = serving_or_sharded(self.table)
        here = gather_instances(table, vectors, positives, weights, self.wire)
        scores = tf.matmul(here.vectors, table.variable, transpose_b=True)
        shape = tf.shape(scores)
        at = tf.stack([here.instance, here.row], axis=1)
        targets = tf.tensor_scatter_nd_max(tf.zeros(shape), at, tf.ones_like(here.weights))
        weighted = tf.tensor_scatter_nd_update(tf.ones(shape), at, here.weights)
        shares = tf.reduce_sum(loss(scores, targets, weighted), axis=1)
        return sum_of_shares(table, shares, here, tf.shape(vectors)[0])


class GatheredInstances(NamedTuple):
    """The instances of all ranks, and those of their positives whose rows this rank owns."""

    vectors: tf.Tensor
    instance: tf.Tensor  # of each positive, among ``vectors``
    row: tf.Tensor  # of each positive, local
    weights: tf.Tensor
    sent: tf.Tensor  # instances to each rank
    received: tf.Tensor  # instances from each rank


def gather_instances(
    table: ShardedTable,
    vectors: tf.Tensor,
    positives: tf.RaggedTensor,
    weights: tf.RaggedTensor | None,
    wire: WireFormat,
) -> GatheredInstances:
    """Send all instances to all ranks, and positives with their weights to the owners of their rows; collective."""
    ids, instances = tf.cast(positives.flat_values, tf.int64), tf.cast(positives.value_rowids(), tf.int32)
    factors = tf.ones_like(ids, tf.float32) if weights is None else tf.cast(weights.flat_values, tf.float32)
    count = tf.shape(vectors)[0]
    if table.size == 1:
        only = tf.reshape(count, [1])
        return GatheredInstances(vectors, instances, tf.cast(checked_ids(table, ids), tf.int32), factors, only, only)
    order, pairs_out = by_owner(table, ids)
    owners = tf.repeat(tf.range(table.size), pairs_out)
    # Each owner receives, for each instance, a mark and then the instance's positives among its rows, so no counts.
    marks = tf.range(table.size * count)
    places = tf.concat([2 * marks, 2 * (owners * count + tf.gather(instances, order)) + 1], axis=0)
    stream = tf.gather(
        tf.concat([tf.fill([table.size * count], tf.constant(-1, tf.int64)), tf.gather(ids, order)], axis=0),
        tf.argsort(places, stable=True),
    )
    received_ids, received_counts = exchange_ids(table, stream, pairs_out + count, ids, f"{table.name}/positives")
    is_mark = received_ids < 0
    sources = tf.repeat(tf.range(table.size), received_counts)
    received = tf.math.bincount(tf.boolean_mask(sources, is_mark), minlength=table.size, maxlength=table.size)
    sent = tf.fill([table.size], count)
    pairs_in = received_counts - received
    moved = exchange(
        tf.tile(vectors, [table.size, 1]), sent, received, rank=table.rank, name=f"{table.name}/vectors", wire=wire,
        kind="vectors",
    )  # fmt: skip
    weighted = exchange(
        tf.gather(factors, order), pairs_out, pairs_in, rank=table.rank, name=f"{table.name}/weights", kind="weights"
    )
    instance = tf.boolean_mask(tf.cumsum(tf.cast(is_mark, tf.int32)) - 1, ~is_mark)
    row = tf.cast(tf.boolean_mask(received_ids, ~is_mark) - table.start, tf.int32)
    return GatheredInstances(moved, instance, row, weighted, sent, received)


def sum_of_shares(table: ShardedTable, shares: tf.Tensor, here: GatheredInstances, count: tf.Tensor) -> tf.Tensor:
    """Return the sum over the ranks of the losses of each of this rank's instances, ``[count]``; collective."""
    if table.size == 1:
        return shares
    back = exchange(shares, here.received, here.sent, rank=table.rank, name=f"{table.name}/shares", kind="losses")
    return tf.reduce_sum(tf.reshape(back, [table.size, count]), axis=0)
