"""Differentiable lookup of ids in a growing table, in training, in inference, and in an exported model."""

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from xmc_tf.collective.growing.hashes import hash_ids
from xmc_tf.collective.growing.serving import served_form
from xmc_tf.collective.growing.table import GrowingTable
from xmc_tf.collective.tables.bags import Combiner, Ids, flat_ids
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.row_requests import request_from_owners
from xmc_tf.collective.tables.wire import WireFormat


@tf.autograph.experimental.do_not_convert
def growing_lookup(
    table: GrowingTable,
    ids: Ids,
    combiner: Combiner = None,
    *,
    weights: tf.Tensor | tf.RaggedTensor | None = None,
    wire: WireFormat = "fp32",
    training: bool = True,
) -> tf.Tensor | tf.RaggedTensor:
    """Return the rows of ids; collective. See ``tables.lookup.lookup``.

    In training, new ids are added. The result for an id without a row is zeros.
    """
    hashes = hash_ids(ids)
    served = served_form(table)
    if served is not None:
        return lookup(served.rows, _mapped(hashes, served.positions), combiner, weights=weights)
    if table.size == 1:
        local = _mapped(hashes, lambda flat: table.rows_of(flat, training))
        return lookup(table, local, combiner, weights=weights)
    rows_of = partial(table.rows_of, training=training)  # makes rows for new ids
    request = request_from_owners(table, flat_ids(hashes), rows_of, check=False)
    return lookup(table, hashes, combiner, weights=weights, wire=wire, request=request)


def _mapped(hashes: Ids, change: Callable[[tf.Tensor], tf.Tensor]) -> Ids:
    """Return a function of the flat hashes, in their structure."""
    if isinstance(hashes, tf.SparseTensor):
        return hashes.with_values(change(hashes.values))
    if isinstance(hashes, tf.RaggedTensor):
        flat = hashes.flat_values
        return hashes.with_flat_values(tf.reshape(change(tf.reshape(flat, [-1])), tf.shape(flat)))
    made = tf.reshape(change(tf.reshape(hashes, [-1])), tf.shape(hashes))
    return tf.ensure_shape(made, hashes.shape)
