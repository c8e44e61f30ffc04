"""Growing tables as ordinary tables, sorted by the ids' hashes, for checkpoints and exported models."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.collective.blocks import set_in_block
from xmc_tf.collective.checkpoints.manifest import Manifest
from xmc_tf.collective.checkpoints.shard_files import read_rows
from xmc_tf.collective.dynamic_tables.index import HASHES, NO_ROW, IndexedIds
from xmc_tf.collective.dynamic_tables.table import GrowingTable
from xmc_tf.collective.tables.table import ShardedTable, SomeRows, serving_or_sharded
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.partition import Partition

# The columns of the table of ids: the hash, the number of steps in which the id was seen, the last of them, and whether
# it has a row.
_COLUMNS = 4


def saved_forms(tables: Sequence[ShardedTable], communicator: Communicator) -> list[ShardedTable]:
    """Replace each growing table by two ordinary tables: its rows and its ids. All ranks must call it."""
    forms: list[ShardedTable] = []
    for table in tables:
        if not isinstance(table, GrowingTable):
            forms.append(table)
            continue
        entries = in_order(table.index.entries)
        rows = entries.rows[entries.rows != NO_ROW]
        counts = communicator.allgather((len(rows), len(entries.hashes)))
        of_rows, of_ids = (partition_of([count[number] for count in counts]) for number in (0, 1))
        slots = {name: SomeRows(variable, rows) for name, variable in table.slots.items()}
        values = SomeRows(table.variable, rows)
        forms.append(ShardedTable(table.name, of_rows.rows, table.dim, of_rows, table.rank, values, slots))
        ids = np.stack([entries.hashes, entries.counts, entries.last, entries.rows != NO_ROW], axis=1).astype(np.int64)
        every = SomeRows(ids, range(len(ids)))
        forms.append(ShardedTable(_ids_of(table), of_ids.rows, _COLUMNS, of_ids, table.rank, every))
    return forms


def loading_forms(folder: Path, manifest: Manifest, tables: Sequence[ShardedTable]) -> list[ShardedTable]:
    """Load the ids of each growing table, and replace it with an ordinary table of its rows."""
    return [_loaded(folder, manifest, one) if isinstance(one, GrowingTable) else one for one in tables]


def in_order(entries: IndexedIds) -> IndexedIds:
    """Return a copy of the ids, sorted by hash."""
    order = np.argsort(entries.hashes)
    return IndexedIds(*(values[order] for values in entries))


def partition_of(counts: Sequence[int]) -> Partition:
    return Partition(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Loading(ShardedTable):
    source: GrowingTable = field(kw_only=True)
    order: np.ndarray = field(kw_only=True)

    def slot(self, name: str, value: float = 0.0) -> tf.Variable:
        """Return the slot's rows in the order of the checkpoint."""
        return SomeRows(self.source.slot(name, value), self.order)


def _loaded(folder: Path, manifest: Manifest, table: GrowingTable) -> ShardedTable:
    """Load this rank's ids into a growing table, and return an ordinary table of their rows."""
    ids, rows = manifest.tables.get(_ids_of(table)), manifest.tables.get(table.name)
    if ids is None or rows is None or ids.dim != _COLUMNS:
        raise InputError(
            f"{folder} has no growing table {table.name!r}",
            expected=f"tables {table.name!r} and {_ids_of(table)!r}",
            received=f"{sorted(manifest.tables)}",
            fix="create the model as it was when it was saved",
        )
    low, high = table.partition.range(table.rank)
    last_rank = table.rank == table.size - 1
    kept: list[np.ndarray] = []
    before = 0

    def put(_: int, block: np.ndarray) -> None:
        nonlocal before
        before += int(block[block[:, 0] < low, 3].sum())
        kept.append(block[(block[:, 0] >= low) & ((block[:, 0] < high) | last_rank)])

    for shard in ids.values:
        read_rows(shard.checked(folder / manifest.data), shard, 0, ids.rows, (_COLUMNS,), put)
    mine = np.concatenate([np.empty([0, _COLUMNS], np.int64), *kept])
    admitted = mine[:, 3] != 0
    numbers = np.where(admitted, np.cumsum(admitted), NO_ROW)
    table.restore(IndexedIds(mine[:, 0], mine[:, 1], mine[:, 2], numbers), manifest.step)
    count = int(admitted.sum())
    bounds = np.full(table.size + 1, before + count, np.int64)
    bounds[1 : table.rank + 1], bounds[0], bounds[-1] = before, 0, rows.rows
    order = np.arange(1, count + 1)
    values, partition = SomeRows(table.variable, order), Partition(bounds)
    slots = {name: SomeRows(variable, order) for name, variable in table.slots.items()}
    of_rows = (table.name, rows.rows, table.dim, partition, table.rank, values, slots)
    return _Loading(*of_rows, source=table, order=order)


def _ids_of(table: ShardedTable) -> str:
    return f"{table.name}/ids"


class ServedForm(NamedTuple):
    """A growing table as it is exported: its rows, ending with zeros for unknown ids, and their sorted hashes."""

    rows: ShardedTable  # the last one is zeros
    hashes: ShardedTable  # the last one is at least as large as all others

    def positions(self, hashes: tf.Tensor) -> tf.Tensor:
        """Return the row position of each hash. Unknown hashes get the position of the last row."""
        known = tf.reshape(serving_or_sharded(self.hashes).variable, [-1])
        at = tf.searchsorted(known, hashes, out_type=tf.int64)
        return tf.where(tf.equal(tf.gather(known, at), hashes), at, tf.size(known, tf.int64) - 1)


_SERVED: ContextVar[dict[GrowingTable, ServedForm] | None] = ContextVar("served_forms", default=None)


@contextmanager
def served_forms(tables: Sequence[ShardedTable], communicator: Communicator) -> Iterator[list[ShardedTable]]:
    """Yield the tables, growing ones in their exported form, which lookups in the block use. All ranks must call it."""
    forms = {}
    for table in tables:
        if not isinstance(table, GrowingTable):
            continue
        entries = in_order(table.index.entries)
        admitted = entries.rows != NO_ROW
        rows, hashes = entries.rows[admitted], entries.hashes[admitted]
        if table.rank == table.size - 1:
            rows, hashes = np.append(rows, NO_ROW), np.append(hashes, HASHES)
        partition = partition_of(communicator.allgather(len(rows)))
        values, keys = SomeRows(table.variable, rows), SomeRows(hashes[:, None], range(len(hashes)))
        forms[table] = ServedForm(
            ShardedTable(table.name, partition.rows, table.dim, partition, table.rank, values),
            ShardedTable(_ids_of(table), partition.rows, 1, partition, table.rank, keys),
        )
    with set_in_block(_SERVED, forms):
        yield [part for table in tables for part in (forms[table] if isinstance(table, GrowingTable) else (table,))]


def served_form(table: GrowingTable) -> ServedForm | None:
    """Return the exported form of a table inside a ``served_forms`` block, and None elsewhere."""
    return (_SERVED.get() or {}).get(table)
