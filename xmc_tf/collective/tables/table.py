"""A table whose rows are divided into contiguous ranges, one per rank."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from xmc_tf.collective.blocks import set_in_block
from xmc_tf.collective.engines.graph_order import in_plain_graph
from xmc_tf.collective.tables.initial_values import BLOCK_ROWS, Initializer, Values, first_values
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.partition import Partition, even_rows


@dataclass(frozen=True)
class SomeRows:
    """Selected rows of a variable, or of a read-only array, in a given order."""

    source: tf.Variable | np.ndarray
    order: range | np.ndarray

    @property
    def shape(self) -> tf.TensorShape:
        return tf.TensorShape([len(self.order), *self.source.shape[1:]])

    @property
    def dtype(self) -> tf.DType:
        return tf.as_dtype(self.source.dtype)


# Slices would copy: ``variable[low:high]`` reads the whole variable first, which copies it after a sparse update, and
# ``variable[low:high].assign(rows)`` holds that slice during the assignment (tests/collective/test_memory.py).
def get_rows(rows: tf.Variable | SomeRows, low: int, high: int) -> tf.Tensor:
    """Return the rows ``[low, high)`` without copying the others. bfloat16 becomes float32, which NumPy supports."""
    source, numbers = _of(rows, low, high)
    if isinstance(source, np.ndarray):
        return tf.constant(source[numbers])
    found = tf.gather(source, numbers)
    return tf.cast(found, tf.float32) if source.dtype == tf.bfloat16 else found


def set_rows(rows: tf.Variable | SomeRows, low: int, values: tf.Tensor | np.ndarray) -> None:
    variable, numbers = _of(rows, low, low + int(values.shape[0]))
    variable.scatter_update(tf.IndexedSlices(tf.cast(values, variable.dtype), numbers))


def _of(rows: tf.Variable | SomeRows, low: int, high: int) -> tuple[Any, np.ndarray]:
    if isinstance(rows, SomeRows):
        return rows.source, np.asarray(rows.order[low:high])
    return rows, np.arange(low, high)


def row_type(variable: Any) -> np.dtype:
    return np.dtype(np.float32 if variable.dtype == tf.bfloat16 else variable.dtype.as_numpy_dtype)


@dataclass(frozen=True, eq=False)
class ShardedTable:
    name: str  # the same on all ranks; it names messages and files
    rows: int  # of all ranks
    dim: int
    partition: Partition
    rank: int
    variable: tf.Variable  # the local rows
    slots: dict[str, tf.Variable] = field(default_factory=dict)
    # The tables that are stacked in this one, if any. They are saved and exported in its place.
    members: list["ShardedTable"] = field(default_factory=list)
    # Whether each id of a lookup has a gradient of its own, as in Keras. Otherwise, those of equal ids are summed where
    # they are looked up, so that fewer rows are sent.
    each_id: bool = False

    @property
    def size(self) -> int:
        return len(self.partition.bounds) - 1

    @property
    def start(self) -> int:
        """The number of the first local row in the whole table."""
        return int(self.partition.bounds[self.rank])

    @property
    def local_rows(self) -> int:
        return int(self.partition.bounds[self.rank + 1]) - self.start

    @property
    def has_row_numbers(self) -> bool:
        """Whether ids are row numbers in the whole table."""
        return not self.members  # each of several stacked tables has a row 0

    def slot(self, name: str, value: float = 0.0) -> tf.Variable:
        """Return the slot with this name. The first call creates it, filled with ``value``."""
        if name not in self.slots:
            with tf.init_scope(), not_replicated():
                filled = tf.fill([self.local_rows, self.dim], tf.constant(value, tf.float32))
                self.slots[name] = tf.Variable(filled, trainable=False, name=f"{self.name}/{name}")
        return self.slots[name]

    def gather(self, local: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.gather(self.variable, local), tf.float32)

    def finish_step(self, step: tf.Tensor) -> None:
        """Do the work that follows each step. Only growing tables have any."""


def make_table(
    name: str,
    rows: int,
    dim: int,
    *,
    size: int = 1,
    rank: int = 0,
    partition: Partition | None = None,
    initializer: Initializer = "uniform",
    seed: int = 0,
    trainable: bool = True,
    dtype: tf.DType = tf.float32,
    each_id: bool = False,
) -> ShardedTable:
    if rows < 1 or dim < 1:
        raise InputError(f"empty table {name!r}", expected="at least one row and column", received=f"({rows}, {dim})")
    partition = even_rows(rows, size) if partition is None else partition
    if int(partition.bounds[-1]) != rows:
        raise InputError(
            f"the partition of table {name!r} does not match its rows",
            expected=f"{rows} rows",
            received=f"{int(partition.bounds[-1])} rows",
        )
    start, stop = partition.range(rank)
    first = partial(first_values, initializer, name, rows, dim, seed)
    if in_plain_graph():
        variable = _variable_of_graph(name, (start, stop, dim), dtype, trainable, first)
    else:
        values = first()
        with tf.init_scope(), not_replicated():
            variable = tf.Variable(tf.zeros([stop - start, dim], dtype), trainable=trainable, name=name)
            if values is not None:
                # In place and in blocks, so that the table is never in memory twice.
                for at in range(start, stop, 16 * BLOCK_ROWS):
                    set_rows(variable, at - start, values(at, min(at + 16 * BLOCK_ROWS, stop)))
    table = ShardedTable(name, rows, dim, partition, rank, variable, each_id=each_id)
    mark_rows(variable, table)
    return table


def _variable_of_graph(
    name: str, range_and_dim: tuple[int, int, int], dtype: tf.DType, trainable: bool, first: Callable[[], Values | None]
) -> tf.Variable:
    """Return a variable of a ``tf.Graph``. The rows are computed when a session runs the initializers."""
    start, stop, dim = range_and_dim

    def compute() -> tf.Tensor:
        values = first()
        return tf.zeros([stop - start, dim]) if values is None else values(start, stop)

    def drawn() -> tf.Tensor:
        rows = tf.py_function(compute, [], tf.float32)
        return tf.cast(tf.ensure_shape(rows, [stop - start, dim]), dtype)

    trained = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    before = len(trained)
    with not_replicated():
        variable = tf.compat.v1.Variable(drawn, trainable=trainable, name=name, use_resource=True, collections=[])
    del trained[before:]  # added in spite of collections=[]; the stand-in for all rows is in the collections instead
    return variable


def mark_rows(variable: tf.Variable, table: ShardedTable) -> None:
    """Make ``table_of`` find the table, and make Keras' optimizers refuse to update a shard on one rank only."""
    variable.sharded_table = table
    variable.overwrite_with_gradient = _OverwriteDisabled(table)


class _OverwriteDisabled:
    """The value of a variable's ``overwrite_with_gradient``: always False. Only Keras' optimizers read it, so reading
    it raises InputError if a Keras optimizer would update a shard without the other ranks.
    """

    def __init__(self, table: ShardedTable) -> None:
        self._table = table

    def __bool__(self) -> bool:
        if self._table.size > 1 and not are_updated_over_ranks():
            raise InputError(
                f"table {self._table.name!r} is sharded, but the optimizer works on one rank only",
                expected="an optimizer over all ranks",
                received="a Keras optimizer",
                fix="move model.compile(...) into `with strategy.scope():`; in your own loop, use "
                "strategy.optimizer(...)",
            )
        return False


_OVER_RANKS: ContextVar[bool] = ContextVar("over_ranks", default=False)


def updated_over_ranks() -> AbstractContextManager[None]:
    """Allow Keras' optimizers in the block to update shards. Their gradients must cover all ranks."""
    return set_in_block(_OVER_RANKS, True)


def are_updated_over_ranks() -> bool:
    return _OVER_RANKS.get()


def table_of(variable: tf.Variable) -> ShardedTable | None:
    """Return the table that a variable represents, or whose local rows it holds. Return None for other variables."""
    return getattr(variable, "sharded_table", None)


_NOT_REPLICATED: ContextVar[bool] = ContextVar("not_replicated", default=False)


def not_replicated() -> AbstractContextManager[None]:
    return set_in_block(_NOT_REPLICATED, True)


def replicated_here() -> bool:
    return not _NOT_REPLICATED.get()


_SERVING_TABLES: ContextVar[dict[ShardedTable, ShardedTable] | None] = ContextVar("serving_tables", default=None)


def serve_from(whole: dict[ShardedTable, ShardedTable]) -> AbstractContextManager[None]:
    """Make lookups in the block use ``whole[table]`` instead of ``table``, because SavedModels are served without
    ranks.
    """
    return set_in_block(_SERVING_TABLES, whole)


def serving_or_sharded(table: ShardedTable) -> ShardedTable:
    """Return the whole table inside a ``serve_from`` block, and ``table`` itself elsewhere."""
    whole = _SERVING_TABLES.get()
    return table if whole is None else whole.get(table, table)
