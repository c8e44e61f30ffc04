"""Scores of (example, row) pairs. Either rows are sent to the examples, or vectors to the owners of the rows."""

import logging
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.tables.bags import DenseOrRagged, flat_ids
from xmc_tf.collective.tables.lookup import by_owner, checked_ids, exchange_ids, fetch, request_rows
from xmc_tf.collective.tables.row_exchange import WireFormat, check_format, exchange_of, row_bytes
from xmc_tf.collective.tables.table import ShardedTable, serving_or_sharded
from xmc_tf.common.errors import InputError

logger = logging.getLogger(__name__)

# The size of the rows that are gathered at once. Tests lower it.
BLOCK_BYTES = 8 * 2**20
RouteName = Literal["auto", "rows", "features"]
# Scores and targets of pairs -> the pairs' losses, elementwise.
PairLoss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


@tf.custom_gradient
def pair_dots(left: tf.Tensor, at_left: tf.Tensor, right: tf.Tensor, at_right: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    """Return ``sum(left[at_left] * right[at_right], axis=1)`` with dense gradients. The sum is computed in blocks that
    fit in the cache. Gathering both sides would take gigabytes for 256 documents with 500 candidates of width 768.
    """

    def back(upstream: tf.Tensor | tf.IndexedSlices) -> tuple[tf.Tensor, None, tf.Tensor, None]:
        if isinstance(upstream, tf.IndexedSlices):  # from a gather that reorders the pairs
            upstream = tf.math.unsorted_segment_sum(upstream.values, upstream.indices, tf.size(at_left))
        pairs = tf.SparseTensor(
            tf.stack([tf.cast(at_left, tf.int64), tf.cast(at_right, tf.int64)], axis=1),
            upstream,
            tf.stack([tf.shape(left, tf.int64)[0], tf.shape(right, tf.int64)[0]]),
        )
        of_left = tf.sparse.sparse_dense_matmul(pairs, right)
        of_right = tf.sparse.sparse_dense_matmul(pairs, left, adjoint_a=True)
        return tf.ensure_shape(of_left, left.shape), None, tf.ensure_shape(of_right, right.shape), None

    size = max(1, BLOCK_BYTES // (4 * left.shape[1]))
    blocks = tf.maximum(1, -(-tf.size(at_left) // size))

    def add(number: tf.Tensor, made: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        block = slice(number * size, (number + 1) * size)
        dots = tf.reduce_sum(tf.gather(left, at_left[block]) * tf.gather(right, at_right[block]), axis=1)
        return number + 1, made.write(number, dots)

    made = tf.TensorArray(tf.float32, size=blocks, infer_shape=False, element_shape=[None])
    # Sequential, so that only one block is in memory.
    _, made = tf.while_loop(lambda number, _: number < blocks, add, (0, made), parallel_iterations=1)
    return tf.reshape(made.concat(), tf.shape(at_left)), back


class PairScorer:
    """Scores of examples against rows of a table: ``scores[b, c] = vectors[b] · table[ids[b, c]]``."""

    def __init__(self, table: ShardedTable, route: RouteName = "auto", wire: WireFormat = "fp32") -> None:
        if route not in ("auto", "rows", "features"):
            raise InputError("unknown route", expected="'auto', 'rows' or 'features'", received=repr(route))
        check_format(wire)
        self.table, self.route, self.wire = table, route, wire
        self.choice: Choice | None = None

    @tf.autograph.experimental.do_not_convert
    def scores(self, vectors: tf.Tensor, ids: DenseOrRagged) -> DenseOrRagged:
        """Return the score of each pair in the shape of ``ids``: ``[B, C]`` or ragged. All ranks must call it."""
        table = serving_or_sharded(self.table)
        instances, flat = _pairs(ids)
        if self._decided(table, ids, instances, flat) == "rows":
            scores = self._score_here(table, vectors, instances, flat)
        else:
            sent = _send(table, vectors, instances, flat, self.wire)
            back = exchange_of(table, _score(table, sent), sent.pairs_in, sent.pairs_out, "scores")
            scores = tf.gather(back, tf.math.invert_permutation(sent.order))
        if isinstance(ids, tf.RaggedTensor):
            return ids.with_flat_values(scores)
        return tf.ensure_shape(tf.reshape(scores, tf.shape(ids)), ids.shape)

    @tf.autograph.experimental.do_not_convert
    def losses(
        self,
        vectors: tf.Tensor,
        ids: DenseOrRagged,
        targets: DenseOrRagged,
        loss: PairLoss,
        weights: DenseOrRagged | None = None,
    ) -> tf.Tensor:
        """Return the sum of the weighted losses of each example's pairs, ``[B]``. All ranks must call it."""
        table = serving_or_sharded(self.table)
        instances, flat = _pairs(ids)
        wanted = tf.cast(flat_ids(targets), tf.float32)
        factors = None if weights is None else tf.cast(flat_ids(weights), tf.float32)
        if self._decided(table, ids, instances, flat) == "rows":
            of_pairs = loss(self._score_here(table, vectors, instances, flat), wanted)
            of_pairs = of_pairs if factors is None else of_pairs * factors
            return tf.math.unsorted_segment_sum(of_pairs, instances, tf.shape(vectors)[0])
        sent = _send(table, vectors, instances, flat, self.wire)
        wanted = exchange_of(table, tf.gather(wanted, sent.order), sent.pairs_out, sent.pairs_in, "targets")
        if factors is not None:
            factors = exchange_of(table, tf.gather(factors, sent.order), sent.pairs_out, sent.pairs_in, "weights")
        of_pairs = loss(_score(table, sent), wanted)
        of_pairs = of_pairs if factors is None else of_pairs * factors
        of_groups = tf.math.unsorted_segment_sum(of_pairs, sent.group_of_pair, tf.shape(sent.vectors)[0])
        back = exchange_of(table, of_groups, sent.groups_in, sent.groups_out, "losses")
        return tf.math.unsorted_segment_sum(back, sent.instance_of_group, tf.shape(vectors)[0])

    def _decided(self, table: ShardedTable, ids: DenseOrRagged, instances: tf.Tensor, flat: tf.Tensor) -> str:
        if self.route != "auto":
            return self.route
        if table.size == 1:
            return "rows"  # nothing is sent
        if self.choice is None:
            self.choice = choose_route(table, ids, instances, flat, self.wire)
            logger.info("table %r: %s", table.name, self.choice.reason)
        return self.choice.route

    def _score_here(self, table: ShardedTable, vectors: tf.Tensor, instances: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        request = request_rows(table, ids)
        return pair_dots(vectors, instances, fetch(table, request, self.wire), request.positions)


class _Sent(NamedTuple):
    """An exchange of pairs. A group consists of an example's pairs whose rows belong to the same rank."""

    order: tf.Tensor  # of this rank's pairs, by owner
    pairs_out: tf.Tensor  # number of this rank's pairs for each owner
    groups_out: tf.Tensor
    instance_of_group: tf.Tensor
    pairs_in: tf.Tensor  # number of pairs received from each rank
    groups_in: tf.Tensor
    group_of_pair: tf.Tensor
    local: tf.Tensor  # local row of each received pair
    vectors: tf.Tensor  # of each received group


def _send(table: ShardedTable, vectors: tf.Tensor, instances: tf.Tensor, ids: tf.Tensor, wire: WireFormat) -> _Sent:
    if table.size == 1:
        pairs, groups = tf.reshape(tf.size(ids), [1]), tf.shape(vectors)[:1]
        local = checked_ids(table, ids)
        everyone = tf.range(tf.shape(vectors)[0])
        return _Sent(tf.range(tf.size(ids)), pairs, groups, everyone, pairs, groups, instances, local, vectors)
    order, pairs_out = by_owner(table, ids)
    owners = tf.repeat(tf.range(table.size), pairs_out)
    ordered_ids, ordered_instances = tf.gather(ids, order), tf.gather(instances, order)
    # The order is stable, so the pairs of a group are adjacent. The first id of each group is sent as its negative
    # complement, so that no counts need be sent.
    changes = (ordered_instances[1:] != ordered_instances[:-1]) | (owners[1:] != owners[:-1])
    first = tf.concat([tf.ones([tf.minimum(tf.size(ids), 1)], tf.bool), changes], axis=0)
    marked = tf.where(first, -1 - ordered_ids, ordered_ids)
    received, pairs_in = exchange_ids(table, marked, pairs_out, ids, f"{table.name}/pairs")
    begins = received < 0
    local = tf.where(begins, -1 - received, received) - table.start
    group_of_pair = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    sources = tf.repeat(tf.range(table.size), pairs_in)
    groups_in = tf.math.bincount(tf.boolean_mask(sources, begins), minlength=table.size, maxlength=table.size)
    groups_out = tf.math.bincount(tf.boolean_mask(owners, first), minlength=table.size, maxlength=table.size)
    instance_of_group = tf.boolean_mask(ordered_instances, first)

    @tf.custom_gradient
    def gathered(vectors: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        # With a dense gradient, because an encoder cannot use sparse ones.
        def back(upstream: tf.Tensor) -> tf.Tensor:
            return tf.math.unsorted_segment_sum(upstream, instance_of_group, tf.shape(vectors)[0])

        return tf.gather(vectors, instance_of_group), back

    moved = exchange_of(table, gathered(vectors), groups_out, groups_in, "vectors", wire)
    return _Sent(order, pairs_out, groups_out, instance_of_group, pairs_in, groups_in, group_of_pair, local, moved)


def _score(table: ShardedTable, sent: _Sent) -> tf.Tensor:
    unique, positions = tf.unique(sent.local)
    rows = tf.cast(tf.gather(table.variable, unique), tf.float32)
    return pair_dots(sent.vectors, sent.group_of_pair, rows, positions)


def _pairs(ids: DenseOrRagged) -> tuple[tf.Tensor, tf.Tensor]:
    if isinstance(ids, tf.RaggedTensor):
        return tf.cast(ids.value_rowids(), tf.int32), tf.cast(ids.flat_values, tf.int64)
    if ids.shape.rank != 2:
        raise InputError("ids of pairs must have two dimensions", expected="[examples, ids]", received=str(ids.shape))
    instances, per_instance = tf.shape(ids)[0], tf.shape(ids)[1]
    return tf.repeat(tf.range(instances), per_instance), tf.cast(tf.reshape(ids, [-1]), tf.int64)


class Choice(NamedTuple):
    route: str
    reason: str


def rows_bytes(rows: float, dim: int, id_bytes: int, wire: WireFormat) -> float:
    """Return the bytes of a step that fetches this many distinct rows from other ranks and returns their gradients."""
    return rows * (2 * row_bytes(dim, wire) + id_bytes)


def features_bytes(groups: float, pairs: float, dim: int, id_bytes: int, wire: WireFormat) -> float:
    """Return the bytes of a step that sends examples to their rows' owners, and gets back scores and gradients."""
    return groups * 2 * row_bytes(dim, wire) + pairs * (id_bytes + 8)  # 8: a score and its gradient


def choose_route(
    table: ShardedTable, ids: DenseOrRagged, instances: tf.Tensor, flat: tf.Tensor, wire: WireFormat
) -> Choice:
    """Choose the route with fewer bytes for this batch or, while tracing, for its shape. All ranks must call it."""
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
    """Count the distinct rows, (example, owner) groups and pairs of this batch whose rows belong to other ranks."""
    owners = np.searchsorted(table.partition.bounds[1:-1], ids, side="right")
    away = owners != table.rank
    groups = np.unique(instances[away].astype(np.int64) * table.size + owners[away])
    return float(len(np.unique(ids[away]))), float(len(groups)), float(away.sum())


def _expected(table: ShardedTable, ids: DenseOrRagged) -> tuple[float, float, float] | None:
    """Return the rows, (example, owner) groups and pairs expected on other ranks for uniform ids, or None."""
    if isinstance(ids, tf.RaggedTensor) or not ids.shape.is_fully_defined():
        return None  # the shape is unknown
    batch, each = ids.shape
    others = (table.size - 1) / table.size
    rows = table.rows * (1.0 - (1.0 - 1.0 / table.rows) ** (batch * each))
    reached = table.size * (1.0 - (1.0 - 1.0 / table.size) ** each)
    return rows * others, batch * reached * others, batch * each * others
