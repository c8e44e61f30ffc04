"""Differentiable lookup of rows of a sharded table, with optional combination of the rows of a bag."""

import tensorflow as tf

from xmc_tf.collective.tables.bags import Combiner, Ids, bags, combine, flat_ids
from xmc_tf.collective.tables.row_requests import RowRequest, checked_ids, request_rows
from xmc_tf.collective.tables.serving_tables import serving_or_sharded
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.collective.tables.wire import WireFormat, check_format, exchange


@tf.autograph.experimental.do_not_convert
def lookup(
    table: ShardedTable,
    ids: Ids,
    combiner: Combiner = None,
    *,
    weights: tf.Tensor | tf.RaggedTensor | None = None,
    wire: WireFormat = "fp32",
    request: RowRequest | None = None,
) -> tf.Tensor | tf.RaggedTensor:
    """Return rows of ``table`` for each rank's own ids, if any; collective. An invalid id is an error on all ranks.

    ``combiner`` is for the last dimension of the ids; an empty bag gives zeros. ``request`` is that of the flat ids, if
    they have been exchanged before.
    """
    table = serving_or_sharded(table)
    check_format(wire)
    of_bags = bags(f"ids for table {table.name!r}", ids, combiner, weights)
    flat = flat_ids(of_bags.ids)
    if combiner is None and request is None and table.size == 1:
        # Ids are made unique only to send or combine fewer rows.
        return of_bags.shaped(table.gather(checked_ids(table, tf.cast(flat, tf.int64))), table.dim)
    if request is None:
        request = request_rows(table, flat)
    return combine(fetch(table, request, wire), request.positions, [of_bags], table.dim)[0]


@tf.autograph.experimental.do_not_convert
def fetch(table: ShardedTable, request: RowRequest, wire: WireFormat = "fp32") -> tf.Tensor:
    """Return the unique rows of a request; ``tf.gather(rows, request.positions)`` has one row per id."""
    table = serving_or_sharded(table)
    rows = table.gather(request.local)
    if table.size == 1:
        return rows
    return exchange(rows, request.send, request.receive, rank=table.rank, name=f"{table.name}/rows", wire=wire)
