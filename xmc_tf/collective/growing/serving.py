"""The form of a growing table in an exported model: the sorted hashes of its ids, and their rows.

A server finds an id by bisection, in standard operations. After the last id comes one more entry with a row of zeros:
the result for unknown ids.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.collective.growing.hashes import HASHES
from xmc_tf.collective.growing.index import NO_ROW
from xmc_tf.collective.growing.saving import in_order, partition_of
from xmc_tf.collective.growing.table import GrowingTable
from xmc_tf.collective.tables.row_access import SomeRows
from xmc_tf.collective.tables.serving_tables import serving_or_sharded
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.ranks.communicator import Communicator


class ServedForm(NamedTuple):
    """A growing table as a table of rows, ordered by hash, and one of the hashes."""

    rows: ShardedTable  # the last one is zeros
    hashes: ShardedTable  # the last one is at least as large as all others

    def positions(self, hashes: tf.Tensor) -> tf.Tensor:
        """Return the position of each hash among the rows; that of the last row for unknown ones."""
        known = tf.reshape(serving_or_sharded(self.hashes).variable, [-1])
        at = tf.searchsorted(known, hashes, out_type=tf.int64)
        return tf.where(tf.equal(tf.gather(known, at), hashes), at, tf.size(known, tf.int64) - 1)


_SERVED: ContextVar[dict[GrowingTable, ServedForm] | None] = ContextVar("served_forms", default=None)


@contextmanager
def served_forms(tables: Sequence[ShardedTable], communicator: Communicator) -> Iterator[list[ShardedTable]]:
    """Yield tables with each growing one replaced by its served form, which lookups in the block use; collective."""
    forms = {one: _form_of(one, communicator) for one in tables if isinstance(one, GrowingTable)}
    token = _SERVED.set(forms)
    try:
        yield [part for table in tables for part in (forms[table] if isinstance(table, GrowingTable) else (table,))]
    finally:
        _SERVED.reset(token)


def served_form(table: GrowingTable) -> ServedForm | None:
    """Return the table's served form within ``served_forms``, otherwise None."""
    return (_SERVED.get() or {}).get(table)


def _form_of(table: GrowingTable, communicator: Communicator) -> ServedForm:
    entries = in_order(table.index.entries)
    admitted = entries.rows != NO_ROW
    rows, hashes = entries.rows[admitted], entries.hashes[admitted]
    if table.rank == table.size - 1:
        rows, hashes = np.append(rows, NO_ROW), np.append(hashes, HASHES)
    partition = partition_of(communicator.allgather(len(rows)))
    return ServedForm(
        ShardedTable(table.name, partition.rows, table.dim, partition, table.rank, SomeRows(table.variable, rows)),
        ShardedTable(
            f"{table.name}/ids", partition.rows, 1, partition, table.rank, SomeRows(hashes[:, None], range(len(hashes)))
        ),
    )
