"""Losses of each example against each row of a table. Each rank computes the losses for its own rows."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import tensorflow as tf

from xmc_tf.collective.optimizers.row_wise.optimizers import RowMeanAdam
from xmc_tf.collective.optimizers.row_wise.table_optimizer import TableOptimizer
from xmc_tf.collective.tables.lookup import by_owner, checked_ids, exchange_ids
from xmc_tf.collective.tables.row_exchange import WireFormat, check_format, exchange_of
from xmc_tf.collective.tables.table import ShardedTable, not_replicated, serving_or_sharded

# Scores, targets (1 for positives, otherwise 0) and weights, all [B, rows] -> losses in that shape.
RowLoss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


class FullTableLoss:
    """A loss over all rows of a table: the sum of ``loss(vectors @ table.T, positives)`` over the rows."""

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
        """Return each example's sum of losses over all rows, ``[B]``. ``weights`` has the weights of the positives. All
        ranks must call it.
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
    """The examples of all ranks, and their positives among the rows of this rank."""

    vectors: tf.Tensor
    instance: tf.Tensor  # of each positive, among ``vectors``
    row: tf.Tensor  # of each positive, local
    weights: tf.Tensor
    sent: tf.Tensor  # number of examples sent to each rank
    received: tf.Tensor  # number of examples received from each rank


def gather_instances(
    table: ShardedTable,
    vectors: tf.Tensor,
    positives: tf.RaggedTensor,
    weights: tf.RaggedTensor | None,
    wire: WireFormat,
) -> GatheredInstances:
    """Send examples to all ranks, and weighted positives to the owners of their rows. All ranks must call it."""
    ids, instances = tf.cast(positives.flat_values, tf.int64), tf.cast(positives.value_rowids(), tf.int32)
    factors = tf.ones_like(ids, tf.float32) if weights is None else tf.cast(weights.flat_values, tf.float32)
    count = tf.shape(vectors)[0]
    if table.size == 1:
        only = tf.reshape(count, [1])
        return GatheredInstances(vectors, instances, tf.cast(checked_ids(table, ids), tf.int32), factors, only, only)
    order, pairs_out = by_owner(table, ids)
    owners = tf.repeat(tf.range(table.size), pairs_out)
    # Each owner receives, for each example, a mark and then its positives among the owner's rows: no counts are sent.
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
    moved = exchange_of(table, tf.tile(vectors, [table.size, 1]), sent, received, "vectors", wire)
    weighted = exchange_of(table, tf.gather(factors, order), pairs_out, pairs_in, "weights")
    instance = tf.boolean_mask(tf.cumsum(tf.cast(is_mark, tf.int32)) - 1, ~is_mark)
    row = tf.cast(tf.boolean_mask(received_ids, ~is_mark) - table.start, tf.int32)
    return GatheredInstances(moved, instance, row, weighted, sent, received)


def sum_of_shares(table: ShardedTable, shares: tf.Tensor, here: GatheredInstances, count: tf.Tensor) -> tf.Tensor:
    """Return the sums of the ranks' losses for each of this rank's examples, ``[count]``. All ranks must call it."""
    if table.size == 1:
        return shares
    back = exchange_of(table, shares, here.received, here.sent, "losses")
    return tf.reduce_sum(tf.reshape(back, [table.size, count]), axis=0)


class RowStep(NamedTuple):
    number: tf.Tensor  # from 1
    rate: tf.Tensor
    factor: tf.Tensor  # the derivative of the step's loss by an example's loss, the same for all examples


class InPlaceAdam:
    """The loss of ``FullTableLoss``, combined with updates of the rows. It works block by block and never holds a
    gradient of the whole table. ``optimizer`` (default: ``RowMeanAdam``) updates the rows, with the rate of the step.
    The table may be bfloat16 or float32. It must not be trainable.
    """

    def __init__(
        self,
        table: ShardedTable,
        optimizer: TableOptimizer | None = None,
        wire: WireFormat = "fp32",
        *,
        rows_at_once: int = 8192,
    ) -> None:
        check_format(wire)
        self.table, self.wire, self.rows_at_once = table, wire, rows_at_once
        self.optimizer = RowMeanAdam() if optimizer is None else optimizer
        shape = [table.local_rows, 1 if self.optimizer.one_per_row else table.dim]
        with tf.init_scope(), not_replicated():
            for name, first in self.optimizer.slots.items():  # saved with the table
                filled = tf.fill(shape, tf.constant(first, tf.float32))
                table.slots[name] = tf.Variable(filled, trainable=False, name=f"{table.name}/{name}")

    @tf.autograph.experimental.do_not_convert
    def losses(
        self,
        vectors: tf.Tensor,
        positives: tf.RaggedTensor,
        loss: RowLoss,
        weights: tf.RaggedTensor | None = None,
        *,
        step: RowStep,
    ) -> tf.Tensor:
        """Update the rows, and return ``FullTableLoss.losses`` from before the update. All ranks must call it."""
        here = gather_instances(self.table, vectors, positives, weights, self.wire)
        fixed = tf.stop_gradient(here.vectors)
        order = tf.argsort(here.row, stable=True)
        rows, instances = tf.gather(here.row, order), tf.gather(here.instance, order)
        factors, size = tf.gather(here.weights, order), self.table.local_rows
        slots = list(self.table.slots.values())

        def block(low: tf.Tensor, shares: tf.Tensor, slopes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            high = tf.minimum(low + self.rows_at_once, size)
            first, last = tf.unstack(tf.searchsorted(rows, tf.stack([low, high])))
            at, numbers = tf.stack([instances[first:last], rows[first:last] - low], axis=1), tf.range(low, high)
            before = tf.gather(self.table.variable, numbers)
            inputs = tf.cast(fixed, before.dtype)
            scores = tf.cast(tf.matmul(inputs, before, transpose_b=True), tf.float32)
            targets = tf.tensor_scatter_nd_max(tf.zeros_like(scores), at, tf.ones_like(factors[first:last]))
            weighted = tf.tensor_scatter_nd_update(tf.ones_like(scores), at, factors[first:last])
            with tf.GradientTape() as tape:
                tape.watch(scores)
                losses = loss(scores, targets, weighted)
            of_scores = tf.cast(tape.gradient(losses, scores), before.dtype)
            slopes += tf.cast(tf.matmul(of_scores, before), tf.float32)
            gradient = tf.matmul(of_scores, inputs, transpose_a=True)
            now = RowStep(*(tf.cast(one, tf.float32) for one in step))
            states = [tf.gather(slot, numbers) for slot in slots]
            after, changed = updated_block(self.optimizer, before, gradient, states, now, low + self.table.start)
            for variable, new in zip([self.table.variable, *slots], [after, *changed], strict=True):
                variable.scatter_update(tf.IndexedSlices(new, numbers))
            return high, shares + tf.reduce_sum(losses, axis=1), slopes

        start = (tf.constant(0), tf.zeros(tf.shape(fixed)[:1]), tf.zeros_like(fixed))
        # Not in parallel: each block writes the table, and the scores of one block at a time are in memory.
        _, shares, slopes = tf.while_loop(lambda low, *_: low < size, block, start, parallel_iterations=1)
        shares, slopes = tf.stop_gradient(shares), tf.stop_gradient(slopes)
        # The value is that of the shares; the gradient with respect to the vectors is that of the slopes.
        shares += tf.reduce_sum(slopes * (here.vectors - fixed), axis=1)
        return sum_of_shares(self.table, shares, here, tf.shape(vectors)[0])


# Compiled, so that each number of a block is read and written once.
@tf.function(jit_compile=True, autograph=False)
def updated_block(
    optimizer: TableOptimizer,
    before: tf.Tensor,
    gradient: tf.Tensor,
    states: list[tf.Tensor],
    step: RowStep,
    first: tf.Tensor,
) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
    gradient = tf.cast(gradient, tf.float32) * step.factor
    rows = tf.cast(before, tf.float32) * (1 - step.rate * optimizer.weight_decay)
    after, changed = optimizer.update(tf, step.rate, step.number, rows, gradient, states)
    if before.dtype == tf.bfloat16:
        after = rounded_stochastically(after, first, tf.cast(step.number, tf.uint32))
    return after, changed


def rounded_stochastically(values: tf.Tensor, first: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Round float32 rows to bfloat16 without bias. The random numbers depend on the row, the column, and the step."""
    shape, uint32 = tf.shape(values), partial(tf.constant, dtype=tf.uint32)
    places = tf.cast(tf.range(shape[0])[:, None] + first, tf.uint32) * tf.cast(shape[1], tf.uint32)
    places += tf.cast(tf.range(shape[1]), tf.uint32)
    # A hash of place and step: two rounds of multiplying and mixing high bits into low ones.
    mixed = (places + step * uint32(0x85EBCA77)) * uint32(0x9E3779B1)
    mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, uint32(15))) * uint32(0x85EBCA6B)
    chance = tf.bitwise.right_shift(mixed, uint32(16))
    # bfloat16 is the upper half of float32: the carry from the lower half is the rounding.
    bits = tf.bitwise.bitwise_and(tf.bitcast(values, tf.uint32) + chance, uint32(0xFFFF0000))
    return tf.cast(tf.bitcast(bits, tf.float32), tf.bfloat16)
