"""Products of vectors with all rows of a sharded table: the scores of all rows, and the best rows.

Each rank multiplies the vectors of all ranks by its own rows, and sends each rank its part of the result.
"""

from typing import NamedTuple

import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.tables.serving_tables import serving_or_sharded
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.collective.tables.wire import WireFormat, exchange
from xmc_tf.common.errors import InputError


class _Gathered(NamedTuple):
    """The vectors of all ranks, and the numbers of vectors sent to and received from each."""

    vectors: tf.Tensor
    sent: tf.Tensor
    received: tf.Tensor


@tf.autograph.experimental.do_not_convert
def scores_of_rows(table: ShardedTable, vectors: tf.Tensor, wire: WireFormat = "fp32") -> tf.Tensor:
    """Return ``vectors @ table.T``, ``[..., rows]``, float32; collective and differentiable.

    Each rank passes its own vectors, if any. They are sent in the format ``wire``, and scores as fp32.
    """
    table, flat, leading = serving_or_sharded(table), *_flat(table, vectors)
    if table.size == 1:
        scores = _scores_here(table, flat)
    else:
        everyone = _gathered(table, flat, wire)
        local, widest = _scores_here(table, everyone.vectors), max(_sizes(table))
        # Rows of an exchange have one width, but ranks may differ in their number of rows.
        padded = tf.pad(local, [[0, 0], [0, widest - table.local_rows]])
        back = _returned(table, padded, everyone, "scores")
        parts = tf.unstack(tf.reshape(back, [table.size, tf.shape(flat)[0], widest]))
        scores = tf.concat([part[:, :size] for part, size in zip(parts, _sizes(table), strict=True)], axis=1)
    return _shaped(scores, leading, vectors, table.rows)


@tf.autograph.experimental.do_not_convert
def top_rows(table: ShardedTable, vectors: tf.Tensor, k: int, wire: WireFormat = "fp32") -> tuple[tf.Tensor, tf.Tensor]:
    """Return the k largest of ``vectors @ table.T`` and their rows, exactly as ``tf.math.top_k``; collective.

    Each rank passes its own vectors, if any. Scores are differentiable. Of equal scores, the lower row comes first.
    """
    table, flat, leading = serving_or_sharded(table), *_flat(table, vectors)
    if not 1 <= k <= table.rows:
        raise InputError(
            f"the best rows of table {table.name!r} (k)", expected=f"1 to {table.rows}, its rows", received=str(k)
        )
    number = tf.int32 if table.rows < 2**31 else tf.int64
    if table.size == 1:
        scores, rows = tf.math.top_k(_scores_here(table, flat), k)
        rows = tf.cast(rows, number)
    else:
        everyone = _gathered(table, flat, wire)
        width = min(k, max(_sizes(table)))
        best = _scores_here(table, everyone.vectors)
        at = tf.zeros_like(best, tf.int32)  # of no row, if this rank has none, which top_k's gradient does not allow
        if table.local_rows:
            best, at = tf.math.top_k(best, min(width, table.local_rows))
        missing = [[0, 0], [0, width - best.shape[1]]]
        best = tf.pad(best, missing, constant_values=-float("inf"))
        own = tf.pad(tf.cast(at, number) + table.start, missing)
        # By rank, so that of equal scores the lower row comes first.
        best = _by_vector(table, _returned(table, best, everyone, "scores"), flat, width)
        sent, _ = operations.alltoall(own, everyone.received, f"{table.name}/best")
        scores, at = tf.math.top_k(best, k)
        rows = tf.gather(_by_vector(table, sent, flat, width), at, batch_dims=1)
    return _shaped(scores, leading, vectors, k), _shaped(rows, leading, vectors, k)


def _flat(table: ShardedTable, vectors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the vectors as a matrix, and the dimensions before their last one."""
    if vectors.shape.rank in (None, 0) or vectors.shape[-1] != table.dim:
        raise InputError(
            f"vectors for the rows of table {table.name!r}",
            expected=f"a last dimension of {table.dim}",
            received=f"shape {vectors.shape}",
        )
    return tf.reshape(tf.cast(vectors, tf.float32), [-1, table.dim]), tf.shape(vectors)[:-1]


def _shaped(matrix: tf.Tensor, leading: tf.Tensor, vectors: tf.Tensor, width: int) -> tf.Tensor:
    shaped = tf.reshape(matrix, tf.concat([leading, [width]], axis=0))
    return tf.ensure_shape(shaped, [*vectors.shape[:-1], width])


def _sizes(table: ShardedTable) -> list[int]:
    """Return the number of rows of each rank."""
    return [stop - start for start, stop in map(table.partition.range, range(table.size))]


def _scores_here(table: ShardedTable, vectors: tf.Tensor) -> tf.Tensor:
    return tf.matmul(vectors, tf.cast(table.variable, tf.float32), transpose_b=True)


def _gathered(table: ShardedTable, vectors: tf.Tensor, wire: WireFormat) -> _Gathered:
    """Send all vectors to all ranks."""
    count = tf.shape(vectors)[0]
    received = operations.allgather(tf.reshape(count, [1]), f"{table.name}/counts")
    received.set_shape([table.size])
    sent = tf.fill([table.size], count)
    moved = exchange(
        tf.tile(vectors, [table.size, 1]),
        sent,
        received,
        rank=table.rank,
        name=f"{table.name}/vectors",
        wire=wire,
        kind="vectors",
    )
    return _Gathered(moved, sent, received)


def _returned(table: ShardedTable, rows: tf.Tensor, everyone: _Gathered, kind: str) -> tf.Tensor:
    """Send the rows of each vector to the rank that has passed it; differentiable."""
    return exchange(rows, everyone.received, everyone.sent, rank=table.rank, name=f"{table.name}/{kind}", kind=kind)


def _by_vector(table: ShardedTable, received: tf.Tensor, vectors: tf.Tensor, width: int) -> tf.Tensor:
    """Return what all ranks have sent for each vector, in the order of the ranks: ``[vectors, ranks * width]``."""
    of_ranks = tf.reshape(received, [table.size, tf.shape(vectors)[0], width])
    return tf.reshape(tf.transpose(of_ranks, [1, 0, 2]), [-1, table.size * width])
