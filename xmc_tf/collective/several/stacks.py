"""Tables of the same width stacked in one: a lookup in all of them is one lookup in the stack.

The rows of a rank are adjacent in the stack: first those of the first table, then those of the next. So the stack is an
ordinary sharded table, and requests, exchanges and optimizers treat all its tables at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from xmc_tf.collective.several.embedding_table import Piece
from xmc_tf.collective.tables.initial_values import first_values
from xmc_tf.collective.tables.row_access import SomeRows
from xmc_tf.collective.tables.table import ShardedTable, make_table
from xmc_tf.ranks.partition import Partition


class StackedTable(ShardedTable):
    """A table of a stack, for checkpoints and exports: its rows and slots are ranges of those of the stack."""

    stack: ShardedTable

    def __init__(self, stack: ShardedTable, piece: Piece, rank: int, offset: int) -> None:
        start, stop = piece.partition.range(rank)
        rows = SomeRows(stack.variable, range(offset, offset + stop - start))
        attributes = {
            "name": piece.name,
            "rows": piece.table.rows,
            "dim": piece.dim,
            "partition": piece.partition,
            "rank": rank,
            "variable": rows,
            "members": [],
            "stack": stack,
        }
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    @property
    def slots(self) -> dict[str, SomeRows]:
        """The optimizer's slots for the local rows, by name."""
        return {name: self._range_of(slot) for name, slot in self.stack.slots.items()}

    def slot(self, name: str, value: float = 0.0) -> SomeRows:
        """Return the slot of that name; the first call creates it for the whole stack."""
        return self._range_of(self.stack.slot(name, value))

    def _range_of(self, slot: tf.Variable) -> SomeRows:
        return SomeRows(slot, self.variable.order)


@dataclass(frozen=True, eq=False)
class Stack:
    """Tables, or columns of tables, of the same width.

    Args:
        table: the stack as one sharded table.
        pieces: the pieces in it, in their order.
    """

    table: ShardedTable
    pieces: tuple[Piece, ...]

    def rows_of(self, numbers: Sequence[int], ids: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the rows in the stack of ids of its pieces, one after another.

        An id out of range becomes ``-1 - number`` of its piece, which the lookup reports on all ranks.

        Args:
            numbers: the number of the piece of each tensor of ids.
            ids: flat ids.
        """
        flat = tf.concat([tf.cast(one, tf.int64) for one in ids], axis=0)
        if len(self.pieces) == 1:
            return tf.where((flat >= 0) & (flat < self.table.rows), flat, -1)
        number = tf.repeat(tf.constant(numbers, tf.int64), tf.stack([tf.size(one) for one in ids]))
        rows = np.array([piece.table.rows for piece in self.pieces], np.int64)
        # A number for each row of each piece, in whose order each rank has a range of each piece.
        bases = np.concatenate([[0], np.cumsum(rows)])[:-1]
        starts = np.concatenate(
            [base + piece.partition.bounds[:-1] for base, piece in zip(bases, self.pieces, strict=True)]
        )
        shift = (_begins(self.pieces).T - starts.reshape(len(rows), -1)).reshape(-1)
        valid = (flat >= 0) & (flat < tf.gather(tf.constant(rows), number))
        global_row = tf.where(valid, flat + tf.gather(tf.constant(bases), number), 0)
        at = tf.searchsorted(tf.constant(starts), global_row, side="right") - 1
        return tf.where(valid, global_row + tf.gather(tf.constant(shift), at), -1 - number)


def make_stack(name: str, pieces: Sequence[Piece], rank: int, seed: int) -> Stack:
    """Return this rank's part of a new stack.

    Args:
        name: a unique name, the same on all ranks.
        pieces: the pieces, all of the same width, and all of them replicated or none.
        rank: this rank, or 0 if all ranks hold all rows.
        seed: the seed of the initial values, which do not depend on the placement.
    """
    begins = _begins(pieces)
    rows = sum(piece.table.rows for piece in pieces)
    partition = Partition(np.concatenate([begins[:, 0], [rows]]))
    table = make_table(
        name, rows, pieces[0].dim, partition=partition, rank=rank, initializer=_initial_values(pieces, seed)
    )
    first = int(begins[rank, 0])
    table.members.extend(
        StackedTable(table, piece, rank, int(begins[rank, number]) - first) for number, piece in enumerate(pieces)
    )
    return Stack(table, tuple(pieces))


def _begins(pieces: Sequence[Piece]) -> np.ndarray:
    """Return the row of the stack at which the rows of a rank (first axis) of a piece (second axis) begin."""
    counts = np.stack([np.diff(piece.partition.bounds) for piece in pieces], axis=1)
    return (np.cumsum(counts) - counts.reshape(-1)).reshape(counts.shape)


def _initial_values(pieces: Sequence[Piece], seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from adjacent rows of the stack to their initial values."""
    begins = _begins(pieces).reshape(-1)
    of_piece = [
        first_values(piece.table.initializer, piece.table.name, piece.table.rows, piece.table.dim, seed)
        for piece in pieces
    ]
    starts = np.stack([piece.partition.bounds[:-1] for piece in pieces], axis=1).reshape(-1)

    def values(rows: np.ndarray) -> np.ndarray:
        out = np.zeros([len(rows), pieces[0].dim], np.float32)
        at, stop = int(rows[0]), int(rows[-1]) + 1
        while at < stop:
            block = int(np.searchsorted(begins, at, side="right")) - 1
            end = min(stop, int(begins[block + 1])) if block + 1 < len(begins) else stop
            number, low = block % len(pieces), int(starts[block]) + at - int(begins[block])
            draw, piece = of_piece[number], pieces[number]
            if draw is not None:
                whole = np.asarray(draw(low, low + end - at))
                out[at - rows[0] : end - rows[0]] = whole[:, piece.start : piece.stop]
            at = end
        return out

    return values
