"""While a SavedModel is traced, whole tables stand in for the shards: what serves has no other ranks to ask."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from xmc_tf.collective.tables.table import ShardedTable

_STANDING_IN: ContextVar[dict[ShardedTable, ShardedTable] | None] = ContextVar("standing_in", default=None)


@contextmanager
def standing_in(whole: dict[ShardedTable, ShardedTable]) -> Iterator[None]:
    """In the block, lookups in a key of ``whole`` go to its value."""
    token = _STANDING_IN.set(whole)
    try:
        yield
    finally:
        _STANDING_IN.reset(token)


def in_place_of(table: ShardedTable) -> ShardedTable:
    """Return the table to look things up in: mostly the given one."""
    whole = _STANDING_IN.get()
    return table if whole is None else whole.get(table, table)
