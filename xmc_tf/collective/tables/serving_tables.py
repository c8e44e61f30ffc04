"""The replacement of sharded tables by whole ones while a SavedModel is traced: a server has no other ranks."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from xmc_tf.collective.tables.table import ShardedTable

_SERVING_TABLES: ContextVar[dict[ShardedTable, ShardedTable] | None] = ContextVar("serving_tables", default=None)


@contextmanager
def serve_from(whole: dict[ShardedTable, ShardedTable]) -> Iterator[None]:
    """Make lookups in a key of ``whole`` use its value within the block."""
    token = _SERVING_TABLES.set(whole)
    try:
        yield
    finally:
        _SERVING_TABLES.reset(token)


def serving_or_sharded(table: ShardedTable) -> ShardedTable:
    """Return the whole table within ``serve_from``, otherwise ``table`` itself."""
    whole = _SERVING_TABLES.get()
    return table if whole is None else whole.get(table, table)
