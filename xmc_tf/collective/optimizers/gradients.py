"""The gradients of a step: sums over the ranks, their norm, and clipping.

The loss of a step is the mean (or the sum) of the ranks' losses. An all-reduce sums the gradients of replicated
variables. The gradient of a row of a sharded table is already summed on the rank that owns the row.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.meters.traffic import after, count_bytes
from xmc_tf.collective.tables.row_sums import sum_by_number
from xmc_tf.collective.tables.table import ShardedTable

Reduction = Literal["mean", "sum"]
Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices


class RowGradient(NamedTuple):
    """The gradient of some local rows of a table; row numbers are unique.

    Args:
        rows: local row numbers.
        values: the gradient of each row.
        of_all: whether it has all rows in their order, on all ranks.
    """

    rows: tf.Tensor
    values: tf.Tensor
    of_all: bool = False


def merge_rows(gradient: Gradient | RowGradient) -> RowGradient:
    """Sum the gradients of each row, which several ranks and several lookups may have touched."""
    if isinstance(gradient, tf.IndexedSlices):
        gradient = RowGradient(gradient.indices, gradient.values)
    if isinstance(gradient, RowGradient):
        return RowGradient(*sum_by_number(gradient.rows, gradient.values))
    return RowGradient(tf.range(tf.shape(gradient)[0]), gradient, of_all=True)  # such as a full softmax's


def dense(gradient: Gradient, variable: tf.Variable) -> tf.Tensor:
    """Return a replicated variable's gradient as a dense tensor: sparse ones have different rows on each rank."""
    if isinstance(gradient, tf.IndexedSlices):
        gradient = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])
    # A gradient loses its static shape in reshapes by dynamic sizes, but counting its bytes needs it
    # (tests/distributed/test_matcher.py, "bert").
    gradient.set_shape(variable.shape)
    return gradient


def sum_replicated(gradients: Sequence[tf.Tensor], size: int) -> list[tf.Tensor]:
    """Return the gradients summed over the ranks, bitwise equal on all of them."""
    gradients = list(gradients)
    if size == 1 or not gradients:
        return gradients
    # Horovod's all-reduce does not support bfloat16.
    wide = [tf.cast(one, tf.float32) if one.dtype == tf.bfloat16 else one for one in gradients]
    whole = sum(one.shape.num_elements() * one.dtype.size for one in wide)
    with after(
        count_bytes("gradients of replicated", 2 * (size - 1) * whole // size)
    ):  # the traffic of a ring all-reduce
        sums = operations.grouped_sum(wide, "xmc_tf/gradients")
    return [tf.cast(total, one.dtype) for total, one in zip(sums, gradients, strict=True)]


def sum_replicated_rows(
    gradients: Sequence[RowGradient], tables: Sequence[ShardedTable], size: int
) -> list[RowGradient]:
    """Return the gradients, those of tables that each rank holds as a whole summed over the ranks.

    Only the touched rows are sent, unless all of them are touched.
    """
    return [
        _summed_rows(one, table) if is_replicated(table, size) else one
        for one, table in zip(gradients, tables, strict=True)
    ]


def is_replicated(table: ShardedTable, size: int) -> bool:
    """Return whether each of several ranks holds the whole table."""
    return table.size == 1 < size


def _summed_rows(gradient: RowGradient, table: ShardedTable) -> RowGradient:
    name = f"{table.name}/replicated"
    if gradient.of_all:
        return RowGradient(gradient.rows, operations.allreduce_sum(gradient.values, name), of_all=True)
    # In the order of the ranks, so that the sums are the same on all of them.
    rows = operations.allgather(gradient.rows, f"{name}/rows")
    values = operations.allgather(gradient.values, f"{name}/values")
    with after(count_bytes("gradients of replicated", tf.size(gradient.values, tf.int64) * 4)):
        return merge_rows(RowGradient(tf.identity(rows), values))


def norm_and_finiteness(
    replicated: Sequence[tf.Tensor], row_gradients: Sequence[RowGradient], size: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the norm of all gradients, shards included, and whether they are finite; the same on all ranks."""
    shards = [one.values for one in row_gradients]
    local = tf.stack([_squares(shards), tf.cast(tf.logical_not(_all_finite(shards)), tf.float32)])
    if size > 1 and shards:
        local = operations.allreduce_sum(local, "xmc_tf/norm")
    norm = tf.sqrt(local[0] + _squares(replicated))
    return norm, tf.equal(local[1], 0.0) & _all_finite(replicated)


def clipped(
    replicated: Sequence[tf.Tensor], row_gradients: Sequence[RowGradient], norm: tf.Tensor, limit: float
) -> tuple[list[tf.Tensor], list[RowGradient]]:
    """Return the gradients, scaled down so that their global norm is at most ``limit``."""
    factor = limit / tf.maximum(norm, limit)
    return scaled(replicated, row_gradients, factor)


def scaled(
    replicated: Sequence[tf.Tensor], row_gradients: Sequence[RowGradient], factor: float | tf.Tensor
) -> tuple[list[tf.Tensor], list[RowGradient]]:
    """Return all gradients times ``factor``."""
    return (
        [one * tf.cast(factor, one.dtype) for one in replicated],
        [RowGradient(one.rows, one.values * factor) for one in row_gradients],
    )


def split(
    gradients: Sequence[Gradient | None], variables: Sequence[tf.Variable], tables: Sequence[ShardedTable | None]
) -> tuple[list[tf.Variable], list[tf.Tensor], list[ShardedTable], list[RowGradient]]:
    """Split into replicated variables and sharded tables; drop those without a gradient, such as a pooler's."""
    given = [
        (gradient, variable, table)
        for gradient, variable, table in zip(gradients, variables, tables, strict=True)
        if gradient is not None
    ]
    replicated = [(variable, dense(gradient, variable)) for gradient, variable, table in given if table is None]
    sharded = [(table, merge_rows(gradient)) for gradient, _, table in given if table is not None]
    return (
        [variable for variable, _ in replicated],
        [gradient for _, gradient in replicated],
        [table for table, _ in sharded],
        [gradient for _, gradient in sharded],
    )


def _squares(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([tf.zeros([]), *(tf.reduce_sum(tf.square(tf.cast(one, tf.float32))) for one in tensors)])


def _all_finite(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.reduce_all([True, *(tf.reduce_all(tf.math.is_finite(one)) for one in tensors)])
