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
from xmc_tf.collective.tables.table import ShardedTable, table_of

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


class Gradients(NamedTuple):
    """The gradients of a step.

    Args:
        variables: the replicated variables.
        dense: their gradients.
        tables: the tables.
        rows: their gradients.
    """

    variables: list[tf.Variable]
    dense: list[tf.Tensor]
    tables: list[ShardedTable]
    rows: list[RowGradient]

    def scaled(self, factor: float | tf.Tensor) -> "Gradients":
        """Return all gradients times ``factor``."""
        return self._replace(
            dense=[one * tf.cast(factor, one.dtype) for one in self.dense],
            rows=[one._replace(values=one.values * factor) for one in self.rows],
        )

    def summed(self, size: int) -> "Gradients":
        """Return the gradients of what each rank holds as a whole summed over the ranks, equal on all of them.

        Args:
            size: the number of ranks.
        """
        if size == 1:
            return self
        rows = [
            _summed_rows(one, table) if table.size == 1 else one
            for one, table in zip(self.rows, self.tables, strict=True)
        ]
        return self._replace(dense=_summed(self.dense, size), rows=rows)

    def norm_and_finiteness(self, size: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the norm of all gradients, shards included, and whether they are finite; the same on all ranks.

        Args:
            size: the number of ranks.
        """
        shards = [one.values for one, table in zip(self.rows, self.tables, strict=True) if table.size == size]
        whole = [one.values for one, table in zip(self.rows, self.tables, strict=True) if table.size < size]
        local = tf.stack([_squares(shards), tf.cast(tf.logical_not(_all_finite(shards)), tf.float32)])
        if size > 1 and shards:
            local = operations.allreduce_sum(local, "xmc_tf/norm")
        norm = tf.sqrt(local[0] + _squares([*self.dense, *whole]))
        return norm, tf.equal(local[1], 0.0) & _all_finite([*self.dense, *whole])


def split(gradients: Sequence[Gradient | None], variables: Sequence[tf.Variable]) -> Gradients:
    """Return the gradients of variables and tables; those without a gradient, such as a pooler's, are left out."""
    found = Gradients([], [], [], [])
    for gradient, variable in zip(gradients, variables, strict=True):
        table = table_of(variable)
        if gradient is None:
            continue
        if table is None:
            found.variables.append(variable)
            found.dense.append(_dense(gradient, variable))
        else:
            found.tables.append(table)
            found.rows.append(merge_rows(gradient))
    return found


def _dense(gradient: Gradient, variable: tf.Variable) -> tf.Tensor:
    """Return a replicated variable's gradient as a dense tensor: sparse ones have different rows on each rank."""
    if isinstance(gradient, tf.IndexedSlices):
        gradient = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])
    # A gradient loses its static shape in reshapes by dynamic sizes, but counting its bytes needs it
    # (tests/distributed/test_matcher.py, "bert").
    gradient.set_shape(variable.shape)
    return gradient


def _summed(gradients: Sequence[tf.Tensor], size: int) -> list[tf.Tensor]:
    """Return the gradients of replicated variables summed over the ranks."""
    if not gradients:
        return []
    # Horovod's all-reduce does not support bfloat16.
    wide = [tf.cast(one, tf.float32) if one.dtype == tf.bfloat16 else one for one in gradients]
    whole = sum(one.shape.num_elements() * one.dtype.size for one in wide)
    with after(
        count_bytes("gradients of replicated", 2 * (size - 1) * whole // size)
    ):  # the traffic of a ring all-reduce
        sums = operations.grouped_sum(wide, "xmc_tf/gradients")
    return [tf.cast(total, one.dtype) for total, one in zip(sums, gradients, strict=True)]


def _summed_rows(gradient: RowGradient, table: ShardedTable) -> RowGradient:
    """Return the gradient summed over the ranks; only touched rows are sent, unless all are."""
    name = f"{table.name}/replicated"
    if gradient.of_all:
        return gradient._replace(values=operations.allreduce_sum(gradient.values, name))
    # In the order of the ranks, so that the sums are the same on all of them.
    rows = operations.allgather(gradient.rows, f"{name}/rows")
    values = operations.allgather(gradient.values, f"{name}/values")
    with after(count_bytes("gradients of replicated", tf.size(gradient.values, tf.int64) * 4)):
        return merge_rows(RowGradient(tf.identity(rows), values))


def _squares(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([tf.zeros([]), *(tf.reduce_sum(tf.square(tf.cast(one, tf.float32))) for one in tensors)])


def _all_finite(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.reduce_all([True, *(tf.reduce_all(tf.math.is_finite(one)) for one in tensors)])
