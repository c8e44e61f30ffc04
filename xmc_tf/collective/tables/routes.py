"""The choice of the route of pairs that sends fewer bytes: rows to instances, or instances to rows."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.collective.tables.wire import WireFormat, row_bytes


class Choice(NamedTuple):
    route: str
    reason: str


def rows_bytes(rows: float, dim: int, id_bytes: int, wire: WireFormat) -> float:
    """Return the bytes of a step that fetches this many different rows of other ranks and returns their gradients."""
    return rows * (2 * row_bytes(dim, wire) + id_bytes)


def features_bytes(groups: float, pairs: float, dim: int, id_bytes: int, wire: WireFormat) -> float:
    """Return the bytes of a step that sends vectors to the owners of rows and receives their gradients.

    A group is an instance with those of its pairs whose rows one other rank owns; ``pairs`` counts pairs of other
    ranks.
    """
    return groups * 2 * row_bytes(dim, wire) + pairs * (id_bytes + 8)  # 8: a score and its gradient


def choose_route(
    table: ShardedTable,
    ids: tf.Tensor | tf.RaggedTensor,
    instances: tf.Tensor,
    flat: tf.Tensor,
    wire: WireFormat,
) -> Choice:
    """Choose a route by the bytes of this batch or, while tracing, by those expected for its shape; collective."""
    eager = not tf.is_symbolic_tensor(flat)
    counts = _counted(table, instances.numpy(), flat.numpy()) if eager else _expected(table, ids)
    id_bytes = 4 if table.rows < 2**31 - 1 else 8
    mine = np.zeros(3, np.float64)
    if counts is None:
        mine[2] = 1.0  # unknown on this rank
    else:
        rows, groups, pairs = counts
        mine[0] = rows_bytes(rows, table.dim, id_bytes, wire)
        mine[1] = features_bytes(groups, pairs, table.dim, id_bytes, wire)
    with tf.init_scope():
        total = operations.allreduce_sum(tf.constant(mine), f"{table.name}/route").numpy()
    if total[2]:
        return Choice(
            "features",
            "route 'features': the batch's shape is unknown, and this route's bytes do not grow with the rows",
        )
    route = "rows" if total[0] < total[1] else "features"
    how = "counted in the first batch" if eager else "expected from the batch's shape"
    return Choice(
        route,
        f"route {route!r}: rows would send {total[0] / 2**20:.2f} MiB per step over all ranks and features "
        f"{total[1] / 2**20:.2f} MiB, {how}",
    )


def _counted(table: ShardedTable, instances: np.ndarray, ids: np.ndarray) -> tuple[float, float, float]:
    """Return the numbers of different rows, groups and pairs of this batch whose rows other ranks own."""
    owners = np.searchsorted(table.partition.bounds[1:-1], ids, side="right")
    away = owners != table.rank
    groups = np.unique(instances[away].astype(np.int64) * table.size + owners[away])
    return float(len(np.unique(ids[away]))), float(len(groups)), float(away.sum())


def _expected(table: ShardedTable, ids: tf.Tensor | tf.RaggedTensor) -> tuple[float, float, float] | None:
    """Return these numbers for uniformly drawn ids, or None if the shape is unknown."""
    if isinstance(ids, tf.RaggedTensor) or not ids.shape.is_fully_defined():
        return None
    batch, each = ids.shape
    others = (table.size - 1) / table.size
    rows = table.rows * (1.0 - (1.0 - 1.0 / table.rows) ** (batch * each))
    reached = table.size * (1.0 - (1.0 - 1.0 / table.size) ** each)
    return rows * others, batch * reached * others, batch * each * others
