"""The gradients of a step: their sums over batches and ranks, their norms, and clipping."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.meters.traffic import after, count_bytes
from xmc_tf.collective.tables.row_sums import sum_by_number
from xmc_tf.collective.tables.table import ShardedTable, table_of

Reduction = Literal["mean", "sum"]
Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices


class RowGradient(NamedTuple):
    """The gradient of some local rows of a table. The row numbers are unique."""

    rows: tf.Tensor
    values: tf.Tensor
    of_all: bool = False  # whether it has all rows in their order, on all ranks


def merge_rows(gradient: Gradient | RowGradient) -> RowGradient:
    """Sum the gradients of each row. Several ranks and several lookups may have contributed to a row."""
    if isinstance(gradient, tf.IndexedSlices):
        gradient = RowGradient(gradient.indices, gradient.values)
    if isinstance(gradient, RowGradient):
        return RowGradient(*sum_by_number(gradient.rows, gradient.values))
    return RowGradient(tf.range(tf.shape(gradient)[0]), gradient, of_all=True)  # such as a full softmax's


class Gradients(NamedTuple):
    """The gradients of a step: those for Keras' optimizer and those for a row-wise optimizer."""

    variables: list[tf.Variable]  # updated by Keras' optimizer
    of_variables: list[Gradient]
    tables: list[ShardedTable]  # updated by a row-wise optimizer
    rows: list[RowGradient]

    def scaled(self, factor: float | tf.Tensor) -> "Gradients":
        return self._times([factor] * (len(self.of_variables) + len(self.rows)))

    def summed(self, size: int) -> "Gradients":
        """Return the gradients summed over the ranks. Those of a shard's rows already are. All ranks must call it."""
        if size == 1:
            return self
        of_variables = list(self.of_variables)
        whole = [number for number, one in enumerate(self.variables) if not _is_shard(table_of(one), size)]
        dense = [number for number in whole if not isinstance(of_variables[number], tf.IndexedSlices)]
        sparse = [number for number in whole if isinstance(of_variables[number], tf.IndexedSlices)]
        for numbers, over_ranks in ((dense, _summed), (sparse, _gathered)):
            found = over_ranks([of_variables[number] for number in numbers], size)
            for number, one in zip(numbers, found, strict=True):
                of_variables[number] = one
        rows = [
            one if _is_shard(table, size) else _summed_rows(one, table)
            for one, table in zip(self.rows, self.tables, strict=True)
        ]
        return self._replace(of_variables=of_variables, rows=rows)

    def squares_and_finiteness(self, size: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return each gradient's sum of squares and whether all are finite, over all ranks. All ranks must call it."""
        values = [*map(_values, self.of_variables), *(one.values for one in self.rows)]
        if not values:
            return tf.zeros([0]), tf.constant(True)
        tables = [*map(table_of, self.variables), *self.tables]
        squares = [tf.reduce_sum(tf.square(tf.cast(one, tf.float32))) for one in values]
        # 1 for each tensor with an element that is not finite, and 0 for the others.
        infinite = [1.0 - tf.cast(tf.reduce_all(tf.math.is_finite(one)), tf.float32) for one in values]
        found = tf.stack([tf.stack(squares), tf.stack(infinite)])
        shards = np.array([_is_shard(table, size) for table in tables])
        if size > 1 and shards.any():
            # The others are equal on all ranks already.
            found = tf.where(shards, operations.allreduce_sum(tf.where(shards, found, 0.0), "xmc_tf/norm"), found)
        return found[0], tf.equal(tf.reduce_sum(found[1]), 0.0)

    def clipped(self, squares: tf.Tensor, each: float | None, total: float | None) -> "Gradients":
        """Scale each gradient down to norm ``each`` (clipnorm), or all together to norm ``total`` (global_clipnorm)."""
        if each is not None:
            return self._times(tf.unstack(each / tf.maximum(tf.sqrt(squares), each)))
        if total is not None:
            # Scaling makes Keras' gradients dense: from there on, the gradients of equal ids are one.
            found = self._replace(of_variables=[_with_distinct_rows(one) for one in self.of_variables])
            return found.scaled(total / tf.maximum(tf.sqrt(tf.reduce_sum(squares)), total))
        return self

    def _times(self, factors: Sequence[float | tf.Tensor]) -> "Gradients":
        """Return each gradient multiplied by its factor."""
        count = len(self.of_variables)
        of_variables: list[Gradient] = []
        for one, by in zip(self.of_variables, factors[:count], strict=True):
            values = _values(one)
            values *= tf.cast(by, values.dtype)
            is_sparse = isinstance(one, tf.IndexedSlices)
            of_variables.append(tf.IndexedSlices(values, one.indices, one.dense_shape) if is_sparse else values)
        rows = [one._replace(values=one.values * by) for one, by in zip(self.rows, factors[count:], strict=True)]
        return self._replace(of_variables=of_variables, rows=rows)


def split(
    gradients: Sequence[Gradient | None], variables: Sequence[tf.Variable], *, rowwise: bool, each_id: bool
) -> Gradients:
    """Separate the gradients for Keras' optimizer from those for row-wise updates (of tables, if ``rowwise``). Missing
    gradients are left out. With ``each_id``, the gradient of an embedding without a table keeps one row per id.
    """
    found = Gradients([], [], [], [])
    for gradient, variable in zip(gradients, variables, strict=True):
        table = table_of(variable)
        if gradient is None:
            continue
        if table is not None and rowwise:
            found.tables.append(table)
            found.rows.append(merge_rows(gradient))
            continue
        variable = local_rows(variable)
        found.variables.append(variable)
        if isinstance(gradient, tf.IndexedSlices) and (each_id or table is not None):
            shape = tf.constant(list(variable.shape), gradient.indices.dtype)
            found.of_variables.append(tf.IndexedSlices(gradient.values, gradient.indices, shape))
            continue
        if isinstance(gradient, tf.IndexedSlices):  # these have different rows on each rank
            gradient = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])
        # A gradient loses its static shape in reshapes by dynamic sizes, but counting its bytes needs it
        # (tests/distributed/test_matcher.py, "bert").
        gradient.set_shape(variable.shape)
        found.of_variables.append(gradient)
    return found


def local_rows(variable: tf.Variable) -> tf.Variable:
    """Return the TensorFlow variable with this rank's rows of a table. Other variables are returned unchanged."""
    table = table_of(variable)
    return variable if table is None else table.variable


def _is_shard(table: ShardedTable | None, size: int) -> bool:
    """Return whether this rank holds only a part of the table's rows."""
    return table is not None and table.size == size > 1


def _values(gradient: Gradient) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _with_distinct_rows(gradient: Gradient) -> Gradient:
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, values = sum_by_number(gradient.indices, gradient.values)
    return tf.IndexedSlices(values, tf.cast(rows, gradient.indices.dtype), gradient.dense_shape)


def _summed(gradients: Sequence[tf.Tensor], size: int) -> list[tf.Tensor]:
    """Return the gradients of replicated variables, summed over the ranks."""
    if not gradients:
        return []
    # Horovod's all-reduce does not support bfloat16.
    wide = [tf.cast(one, tf.float32) if one.dtype == tf.bfloat16 else one for one in gradients]
    whole = sum(one.shape.num_elements() * one.dtype.size for one in wide)
    ring = 2 * (size - 1) * whole // size  # the traffic of a ring all-reduce
    with after(count_bytes("gradients of replicated", ring)):
        sums = operations.grouped_sum(wide, "xmc_tf/gradients")
    return [tf.cast(total, one.dtype) for total, one in zip(sums, gradients, strict=True)]


def _gathered(gradients: Sequence[tf.IndexedSlices], size: int) -> list[tf.IndexedSlices]:
    """Return the sparse gradients of all ranks in rank order. Gradients of the same width share a message."""
    found: dict[int, tf.IndexedSlices] = {}
    widths = [one.values.shape[1:].num_elements() for one in gradients]
    for width in sorted(set(widths)):
        numbers = [number for number, one in enumerate(widths) if one == width]
        parts = []
        for at, one in enumerate(gradients[number] for number in numbers):
            bits = tf.bitcast(tf.cast(tf.reshape(one.values, [-1, width]), tf.float32), tf.int32)
            rows = tf.cast(one.indices, tf.int32)[:, None]
            parts.append(tf.concat([bits, rows, tf.fill(tf.shape(rows), at)], axis=1))
        own = tf.concat(parts, axis=0)
        with after(count_bytes("gradients of replicated", tf.size(own, tf.int64) * (4 * (size - 1)))):
            every = tf.identity(operations.allgather(own, f"xmc_tf/gradients/rows_{width}"))
        by_gradient = tf.dynamic_partition(every, every[:, -1], len(numbers))
        for number, part in zip(numbers, by_gradient, strict=True):
            one = gradients[number]
            values = tf.reshape(tf.bitcast(part[:, :width], tf.float32), [-1, *one.values.shape[1:]])
            rows = tf.cast(part[:, width], one.indices.dtype)
            values, rows = _of_one_lookup(tf.cast(values, one.values.dtype), rows, size)
            found[number] = tf.IndexedSlices(values, rows, one.dense_shape)
    return [found[number] for number in range(len(gradients))]


def _of_one_lookup(values: tf.Tensor, rows: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Sum the gathered gradients over the ranks if all ranks looked up the same distinct ids in the same order, such as
    positions. In one process, each of these ids has a single gradient, which, for example, Adagrad squares as a whole.
    """
    each = tf.size(rows) // size
    ids = rows[:each]
    same = tf.equal(tf.size(rows), each * size) & tf.reduce_all(tf.equal(rows[: each * size], tf.tile(ids, [size])))
    same &= tf.equal(tf.size(tf.unique(ids)[0]), each)  # ids of examples that happen to be the same repeat
    shape = values.shape[1:]

    def summed() -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reduce_sum(tf.reshape(values, [size, each, *shape]), axis=0), ids

    values, rows = tf.cond(same, summed, lambda: (values, rows))
    return tf.ensure_shape(values, [None, *shape]), rows


def _summed_rows(gradient: RowGradient, table: ShardedTable) -> RowGradient:
    """Return the gradient summed over the ranks. Only touched rows are sent, unless the gradient has all rows."""
    name = f"{table.name}/replicated"
    if gradient.of_all:
        return gradient._replace(values=operations.allreduce_sum(gradient.values, name))
    # In the order of the ranks, so that the sums are the same on all of them.
    rows = operations.allgather(gradient.rows, f"{name}/rows")
    values = operations.allgather(gradient.values, f"{name}/values")
    with after(count_bytes("gradients of replicated", tf.size(gradient.values, tf.int64) * 4)):
        return merge_rows(RowGradient(tf.identity(rows), values))


class Accumulator(tf.Module):
    """The sum of the gradients since the last step, divided by ``every``, the number of batches per step."""

    def __init__(self, every: int) -> None:
        super().__init__(name="accumulator")
        self.every = every
        self._replicated: list[tf.Variable] | None = None
        self._rows: list[tf.Variable] = []
        self._values: list[tf.Variable] = []
        with tf.init_scope():
            self.count = tf.Variable(0, dtype=tf.int64, trainable=False, name="count")

    def add(self, gradients: Gradients) -> None:
        """Add the gradients of a batch. Each call must pass the same variables in the same order."""
        if self._replicated is None:
            self._build(gradients)
        assert self._replicated is not None
        first = tf.equal(self.count, 0)
        for held, gradient in zip(self._replicated, gradients.of_variables, strict=True):
            held.assign(tf.where(first, tf.zeros_like(held), held) + gradient / self.every)
        for rows, values, new in zip(self._rows, self._values, gradients.rows, strict=True):
            kept = tf.where(first, 0, tf.size(rows))
            both = merge_rows(
                RowGradient(
                    tf.concat([rows[:kept], tf.cast(new.rows, tf.int64)], axis=0),
                    tf.concat([values[:kept], new.values / self.every], axis=0),
                )
            )
            rows.assign(both.rows)
            values.assign(both.values)
        self.count.assign_add(1)

    def full(self) -> tf.Tensor:
        return self.count >= self.every

    def take(self, last: Gradients) -> Gradients:
        """Return the accumulated gradients in the form of ``last``, and start a new sum with the next batch. The sums
        are not cleared: if an empty value is assigned in a condition, TensorFlow's graph optimizer infers that the
        variable is always empty (world_optimizers.check_accumulation).
        """
        self.count.assign(0)
        rows = [
            RowGradient(one.read_value(), values.read_value())
            for one, values in zip(self._rows, self._values, strict=True)
        ]
        return last._replace(of_variables=[held.read_value() for held in self._replicated or []], rows=rows)

    def _build(self, gradients: Gradients) -> None:
        shapes = [(gradient.shape, gradient.dtype) for gradient in gradients.of_variables]
        widths = [gradient.values.shape[1] for gradient in gradients.rows]
        with tf.init_scope():
            self._replicated = [tf.Variable(tf.zeros(shape, dtype), trainable=False) for shape, dtype in shapes]
            self._rows = [tf.Variable(tf.zeros([0], tf.int64), shape=[None], trainable=False) for _ in widths]
            self._values = [tf.Variable(tf.zeros([0, width]), shape=[None, width], trainable=False) for width in widths]
