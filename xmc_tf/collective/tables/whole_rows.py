"""The rows of whole tables: on rank 0 for exports and Keras' files, which one process writes, or on all ranks.

While rank 0 saves with Keras, the other ranks wait for its requests and send their rows. Keras needs the whole table in
the memory of rank 0; ``save_training`` and ``export_saved_model`` write larger tables.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf

from xmc_tf.collective.checkpoints.shard_files import blocks, rows_per_block
from xmc_tf.collective.tables.row_access import SomeRows, get_rows, row_type
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.communicator import Communicator

# The rows that are sent at a time.
BLOCK_BYTES = 64 << 20

_SAVING: ContextVar[tuple[Communicator, list[ShardedTable]] | None] = ContextVar("saving", default=None)


def rows_on_rank_0(
    table: ShardedTable, variable: tf.Variable | SomeRows, communicator: Communicator
) -> Iterator[tuple[int, np.ndarray | None]]:
    """Yield the first row and, on rank 0, the rows of each block of a whole table, or of a slot; collective."""
    for rank in range(table.size):
        rows = rows_per_block((table.dim,), row_type(variable), BLOCK_BYTES)
        for low, high in blocks(*table.partition.range(rank), rows):
            block = None
            if communicator.rank == rank:
                block = get_rows(variable, low - table.start, high - table.start).numpy()
            gathered = communicator.gather(block) if rank else [block]
            yield low, gathered[rank] if gathered else None


def whole_rows(table: ShardedTable, slot: str | None = None) -> np.ndarray:
    """Return the rows of a whole table, or of a slot; collective, but called by rank 0 alone in ``save_on_rank_0``."""
    own = table.variable if slot is None else table.slot(slot)
    if table.size == 1:
        return own.numpy()
    saving = _SAVING.get()
    if saving is None:
        return choose_communicator().allgather_array(get_rows(own, 0, table.local_rows).numpy())
    communicator, tables = saving
    communicator.broadcast((next(number for number, one in enumerate(tables) if one is table), slot or ""))
    whole = np.empty((table.rows, table.dim), np.float32)
    for low, rows in rows_on_rank_0(table, own, communicator):
        assert rows is not None
        whole[low : low + len(rows)] = rows
    return whole


def save_on_rank_0(communicator: Communicator, tables: list[ShardedTable], save: Callable[[], Any]) -> Any:
    """Call ``save``, which may call ``whole_rows``, on rank 0, while the other ranks send the rows; collective.

    ``tables`` has the same order on all ranks. If rank 0 fails, the others raise an OSError.
    """
    if communicator.rank == 0:
        token = _SAVING.set((communicator, tables))
        trouble = "an error"
        try:
            result, trouble = save(), ""
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
            raise
        finally:
            _SAVING.reset(token)
            communicator.broadcast(trouble)
        return result
    nothing: Any = None
    while not isinstance(request := communicator.broadcast(nothing), str):
        table, slot = tables[request[0]], request[1]
        for _ in rows_on_rank_0(table, table.slot(slot) if slot else table.variable, communicator):
            continue
    if request:
        raise OSError(f"rank 0 could not save the model: {request}")
    return None
