"""Tables of the same width stacked in one: a lookup in all of them is one lookup in the stack.

The rows of a rank are adjacent in the stack: first those of the first table, then those of the next. So the stack is an
ordinary sharded table, and requests, exchanges and optimizers treat all its tables at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.collective.several.embedding_table import EmbeddingTable
from xmc_tf.collective.tables.initial_values import first_values
from xmc_tf.collective.tables.row_access import SomeRows
from xmc_tf.collective.tables.table import ShardedTable, make_table
from xmc_tf.ranks.partition import Partition


class TableRows(NamedTuple):
    """A table, and the rows of each rank; of one rank, if all ranks hold all rows."""

    table: EmbeddingTable
    partition: Partition


class StackedTable(ShardedTable):
    """A table of a stack, for checkpoints and exports: its rows and slots are ranges of those of the stack."""

    stack: ShardedTable

    def __init__(self, stack: ShardedTable, one: TableRows, rank: int, offset: int) -> None:
        start, stop = one.partition.range(rank)
        rows = SomeRows(stack.variable, range(offset, offset + stop - start))
        attributes = {
            "name": one.table.name,
            "rows": one.table.rows,
            "dim": one.table.dim,
            "partition": one.partition,
            "rank": rank,
            "variable": rows,
            "members": [],
            "stack": stack,
        }
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    @property
    def slots(self) -> dict[str, SomeRows]:
        return {name: self._range_of(slot) for name, slot in self.stack.slots.items()}

    def slot(self, name: str, value: float = 0.0) -> SomeRows:
        """Return the slot of that name; the first call creates it for the whole stack."""
        return self._range_of(self.stack.slot(name, value))

    def _range_of(self, slot: tf.Variable) -> SomeRows:
        return SomeRows(slot, self.variable.order)


@dataclass(frozen=True, eq=False)
class Stack:
    """Tables of the same width as one sharded table."""

    table: ShardedTable
    parts: tuple[TableRows, ...]

    def rows_of(self, numbers: Sequence[int], ids: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the rows in the stack of flat ids, concatenated; ``numbers`` has the table of each tensor of ids.

        An id out of range becomes ``-1 - number`` of its table, which the lookup reports on all ranks.
        """
        flat = tf.concat([tf.cast(one, tf.int64) for one in ids], axis=0)
        if len(self.parts) == 1:
            return tf.where((flat >= 0) & (flat < self.table.rows), flat, -1)
        number = tf.repeat(tf.constant(numbers, tf.int64), tf.stack([tf.size(one) for one in ids]))
        rows = np.array([one.table.rows for one in self.parts], np.int64)
        # A number for each row of each table, in whose order each rank has a range of each table.
        bases = np.concatenate([[0], np.cumsum(rows)])[:-1]
        starts = np.concatenate([base + one.partition.bounds[:-1] for base, one in zip(bases, self.parts, strict=True)])
        shift = (_begins(self.parts).T - starts.reshape(len(rows), -1)).reshape(-1)
        valid = (flat >= 0) & (flat < tf.gather(tf.constant(rows), number))
        global_row = tf.where(valid, flat + tf.gather(tf.constant(bases), number), 0)
        at = tf.searchsorted(tf.constant(starts), global_row, side="right") - 1
        return tf.where(valid, global_row + tf.gather(tf.constant(shift), at), -1 - number)


def make_stack(name: str, parts: Sequence[TableRows], rank: int, seed: int, each_id: bool = False) -> Stack:
    """Return this rank's part of a new stack of tables of the same width, all of them replicated or none.

    ``rank`` is 0 if all ranks hold all rows.
    """
    begins = _begins(parts)
    rows = sum(one.table.rows for one in parts)
    partition = Partition(np.concatenate([begins[:, 0], [rows]]))
    table = make_table(
        name,
        rows,
        parts[0].table.dim,
        partition=partition,
        rank=rank,
        initializer=_initial_values(parts, seed),
        each_id=each_id,
    )
    first = int(begins[rank, 0])
    table.members.extend(
        StackedTable(table, one, rank, int(begins[rank, number]) - first) for number, one in enumerate(parts)
    )
    return Stack(table, tuple(parts))


def _begins(parts: Sequence[TableRows]) -> np.ndarray:
    """Return the row of the stack at which the rows of a rank (first axis) of a table (second axis) begin."""
    counts = np.stack([np.diff(one.partition.bounds) for one in parts], axis=1)
    return (np.cumsum(counts) - counts.reshape(-1)).reshape(counts.shape)


def _initial_values(parts: Sequence[TableRows], seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from adjacent rows of the stack to their initial values."""
    begins = _begins(parts).reshape(-1)
    of_table = [
        first_values(one.table.initializer, one.table.name, one.table.rows, one.table.dim, seed) for one in parts
    ]
    starts = np.stack([one.partition.bounds[:-1] for one in parts], axis=1).reshape(-1)

    def values(rows: np.ndarray) -> np.ndarray:
        out = np.zeros([len(rows), parts[0].table.dim], np.float32)
        at, stop = int(rows[0]), int(rows[-1]) + 1
        while at < stop:
            block = int(np.searchsorted(begins, at, side="right")) - 1
            end = min(stop, int(begins[block + 1])) if block + 1 < len(begins) else stop
            low = int(starts[block]) + at - int(begins[block])
            if (draw := of_table[block % len(parts)]) is not None:
                out[at - rows[0] : end - rows[0]] = np.asarray(draw(low, low + end - at))
            at = end
        return out

    return values
