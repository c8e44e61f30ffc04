"""The rows of whole tables on rank 0, for the files of Keras, which one process writes.

While rank 0 saves, the other ranks wait for its requests and send their rows. The whole table is in the memory of rank
0, as Keras needs it; ``save_training`` and ``export_saved_model`` write tables that are larger.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from xmc_tf.collective.checkpoints.shard_files import blocks, rows_per_block
from xmc_tf.collective.tables.row_access import get_rows
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator

BLOCK_BYTES = 64 << 20

_SAVING: ContextVar[tuple[Communicator, list[ShardedTable]] | None] = ContextVar("saving", default=None)


def whole_rows(table: ShardedTable, slot: str | None = None) -> np.ndarray:
    """Return the rows of a whole table, or those of a slot; on rank 0, within ``save_on_rank_0``.

    Args:
        table: the table.
        slot: the name of a slot; default: the rows themselves.
    """
    own = table.variable if slot is None else table.slot(slot)
    if table.size == 1:
        return own.numpy()
    saving = _SAVING.get()
    if saving is None:
        raise InputError(
            f"table {table.name!r} is sharded: this rank has a part of it only",
            fix="call model.save(...) or model.save_weights(...), on all ranks",
        )
    communicator, tables = saving
    number = next(number for number, one in enumerate(tables) if one is table)
    whole = np.empty((table.rows, table.dim), np.float32)
    for rank in range(table.size):
        for low, high in _blocks_of(table, rank):
            request: Any = communicator.broadcast((number, slot or "", rank, low, high))
            whole[low:high] = _answer(communicator, tables, request)[rank]
    return whole


def save_on_rank_0(communicator: Communicator, tables: list[ShardedTable], save: Callable[[], Any]) -> Any:
    """Call ``save`` on rank 0, while the other ranks send the rows that it asks for; collective.

    Args:
        communicator: the ranks.
        tables: the sharded tables of the model, in the same order on all ranks.
        save: writes the files; it may call ``whole_rows``.

    Returns:
        The result of ``save`` on rank 0, otherwise None.

    Raises:
        OSError: on the other ranks, if rank 0 cannot save. Rank 0 raises its own error.
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
    request: Any = communicator.broadcast(None)
    while not isinstance(request, str):
        _answer(communicator, tables, request)
        request = communicator.broadcast(None)
    if request:
        raise OSError(f"rank 0 could not save the model: {request}")
    return None


def _answer(communicator: Communicator, tables: list[ShardedTable], request: Any) -> list[np.ndarray]:
    """Send the rows of a request to rank 0."""
    number, slot, rank, low, high = request
    table = tables[number]
    rows = np.zeros((0, table.dim), np.float32)
    if communicator.rank == rank:
        own = table.variable if not slot else table.slot(slot)
        rows = get_rows(own, low - table.start, high - table.start).numpy()
    return communicator.gather(rows)


def _blocks_of(table: ShardedTable, rank: int) -> list[tuple[int, int]]:
    low, high = (int(bound) for bound in table.partition.bounds[rank : rank + 2])
    return list(blocks(low, high, rows_per_block((table.dim,), np.dtype(np.float32), BLOCK_BYTES)))
