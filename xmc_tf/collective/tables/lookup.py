"""Differentiable lookup of rows of a sharded table, with optional combination of the rows of a bag."""

from typing import Literal, NamedTuple, TypeAlias

import tensorflow as tf

from xmc_tf.collective.tables.row_requests import Request, checked_ids, request_rows
from xmc_tf.collective.tables.serving_tables import serving_or_sharded
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.collective.tables.wire import WireFormat, check_format, exchange
from xmc_tf.common.errors import InputError

Combiner = Literal["sum", "mean"] | None
Ids: TypeAlias = tf.Tensor | tf.RaggedTensor | tf.SparseTensor


@tf.autograph.experimental.do_not_convert
def lookup(
    table: ShardedTable,
    ids: Ids,
    combiner: Combiner = None,
    *,
    weights: tf.Tensor | tf.RaggedTensor | None = None,
    wire: WireFormat = "fp32",
    request: Request | None = None,
) -> tf.Tensor | tf.RaggedTensor:
    """Return rows of ``table``; collective. Each rank passes its own ids, if any.

    Example:
        >>> lookup(table, [[3, 1], [3, 3]]).shape
        TensorShape([2, 2, 8])
        >>> lookup(table, tf.ragged.constant([[3, 1, 4], []], dtype=tf.int64), "mean").shape
        TensorShape([2, 8])

    Args:
        table: the table, the same on all ranks.
        ids: dense of any shape, ragged, or sparse with two dimensions.
        combiner: "sum" or "mean" of the rows of the last dimension; an empty bag gives zeros. Default: one row per id.
        weights: the weights of the rows for the combiner, in the shape of dense or ragged ids; default: 1.
        wire: the format in which rows and gradients are sent.
        request: ``request_rows(table, flat_ids(ids))``, if the ids have been exchanged before.

    Raises:
        tf.errors.InvalidArgumentError: on all ranks, if an id on any of them is out of range.
    """
    table = serving_or_sharded(table)
    check_format(wire)
    if combiner not in (None, "sum", "mean"):
        raise InputError("combiner", expected="None, 'sum' or 'mean'", received=repr(combiner))
    if weights is not None and combiner is None:
        raise InputError("weights without a combiner", fix="give combiner='sum' or 'mean', or multiply the rows")
    ids = whole_numbers(ids, f"ids for table {table.name!r}")
    if combiner is None and request is None and table.size == 1:
        # Ids are made unique only to send or combine fewer rows.
        return shaped(table.gather(checked_ids(table, tf.cast(flat_ids(ids), tf.int64))), ids, table.dim)
    if request is None:
        request = request_rows(table, flat_ids(ids))
    rows = fetch(table, request, wire)
    if combiner is None:
        return shaped(tf.gather(rows, request.positions), ids, table.dim)
    return combined(rows, request.positions, ids, combiner, weights, table.dim)


def flat_ids(ids: Ids) -> tf.Tensor:
    """Return the ids as a flat tensor, as ``request_rows`` expects them."""
    if isinstance(ids, tf.SparseTensor):
        return ids.values
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.flat_values
    return tf.reshape(ids, [-1])


@tf.autograph.experimental.do_not_convert
def fetch(table: ShardedTable, request: Request, wire: WireFormat = "fp32") -> tf.Tensor:
    """Return the unique rows of a request; ``tf.gather(rows, request.positions)`` has one row per id."""
    table = serving_or_sharded(table)
    rows = table.gather(request.local)
    if table.size == 1:
        return rows
    return exchange(rows, request.send, request.receive, rank=table.rank, name=f"{table.name}/rows", wire=wire)


def whole_numbers(ids: Ids, name: str) -> tf.Tensor | tf.RaggedTensor:
    """Return ids as a dense or ragged tensor, after checking their type.

    Args:
        ids: dense, ragged, or sparse with two dimensions.
        name: what an error calls them.
    """
    if isinstance(ids, tf.SparseTensor):
        ids = _bags_of(ids)
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer:
        raise InputError(name, expected="whole numbers", received=ids.dtype.name)
    return ids


def _bags_of(ids: tf.SparseTensor) -> tf.RaggedTensor:
    """Return the ids of each row of a sparse tensor; their columns do not matter."""
    if ids.shape.rank != 2:
        raise InputError("sparse ids", expected="two dimensions", received=str(ids.shape))
    return tf.RaggedTensor.from_value_rowids(ids.values, ids.indices[:, 0], nrows=ids.dense_shape[0])


def shaped(flat: tf.Tensor, ids: tf.Tensor | tf.RaggedTensor, dim: int) -> tf.Tensor | tf.RaggedTensor:
    """Return one row per id, in the ids' shape."""
    if isinstance(ids, tf.RaggedTensor):
        inner = tf.reshape(flat, tf.concat([tf.shape(ids.flat_values), [dim]], axis=0))
        return ids.with_flat_values(tf.ensure_shape(inner, [*ids.flat_values.shape, dim]))
    return tf.ensure_shape(tf.reshape(flat, tf.concat([tf.shape(ids), [dim]], axis=0)), [*ids.shape, dim])


def combined(
    rows: tf.Tensor,
    positions: tf.Tensor,
    ids: tf.Tensor | tf.RaggedTensor,
    combiner: str,
    weights: tf.Tensor | tf.RaggedTensor | None,
    dim: int,
) -> tf.Tensor:
    """Return the sum or mean over the last dimension."""
    layout = bag_layout(ids, dim)
    if weights is None:
        add = tf.sparse.segment_sum if combiner == "sum" else tf.sparse.segment_mean
        summed = add(rows, positions, layout.bag_of_id, num_segments=layout.bags)
        return layout.shaped(summed)
    flat = tf.cast(
        weights.flat_values if isinstance(weights, tf.RaggedTensor) else tf.reshape(weights, [-1]), tf.float32
    )
    bag_of_id, bags = tf.cast(layout.bag_of_id, tf.int32), tf.cast(layout.bags, tf.int32)
    summed = tf.math.unsorted_segment_sum(tf.gather(rows, positions) * flat[:, None], bag_of_id, bags)
    if combiner == "mean":
        summed = tf.math.divide_no_nan(summed, tf.math.unsorted_segment_sum(flat, bag_of_id, bags)[:, None])
    return layout.shaped(summed)


class BagLayout(NamedTuple):
    """The bags of a feature: the last dimension of its ids.

    Args:
        bags: the number of bags.
        bag_of_id: the bag of each id, ascending.
        out_shape: the shape of the combined rows.
        static_shape: the same, as far as it is known before the graph runs.
    """

    bags: tf.Tensor
    bag_of_id: tf.Tensor
    out_shape: tf.Tensor
    static_shape: list[int | None]

    def shaped(self, summed: tf.Tensor) -> tf.Tensor:
        """Return one row per bag in the shape of the bags."""
        return tf.ensure_shape(tf.reshape(summed, self.out_shape), self.static_shape)


def bag_layout(ids: tf.Tensor | tf.RaggedTensor, dim: int) -> BagLayout:
    """Return the bags of dense or ragged ids."""
    if isinstance(ids, tf.RaggedTensor):
        if ids.ragged_rank != 1 or ids.flat_values.shape.rank != 1:
            raise InputError("ragged ids with a combiner", expected="two dimensions", received=str(ids.shape))
        bags = ids.nrows()
        return BagLayout(bags, ids.value_rowids(), tf.stack([tf.cast(bags, tf.int32), dim]), [ids.shape[0], dim])
    if ids.shape.rank in (None, 0):
        raise InputError("ids with a combiner", expected="one dimension or more", received=str(ids.shape))
    per_bag, leading = tf.shape(ids)[-1], tf.shape(ids)[:-1]
    bags = tf.reduce_prod(leading)
    bag_of_id = tf.repeat(tf.range(bags), per_bag)
    return BagLayout(bags, bag_of_id, tf.concat([leading, [dim]], axis=0), [*ids.shape[:-1], dim])
