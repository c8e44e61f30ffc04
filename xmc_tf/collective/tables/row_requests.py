"""Who asks whom for which rows: ids in, one exchange, and every rank knows what to send and what will come.

A request is independent of the table's values. The one for the next batch can therefore be made while this step still
computes.
"""

from typing import NamedTuple

import tensorflow as tf

from xmc_tf.collective import horovod_ops
from xmc_tf.collective.meters.traffic import after, count_sent
from xmc_tf.collective.tables.stand_ins import in_place_of
from xmc_tf.collective.tables.table import ShardedTable

# In front of its ids a rank tells every other how many of its ids the table does not have, and the first three. So an
# error is everybody's, at the same point, and nobody waits for a rank that has given up.
HEADER = 4


class Request(NamedTuple):
    """What a batch of ids comes to.

    Args:
        positions: for every id of the batch, where its row will lie among those that come.
        local: the local numbers of the rows that the ranks want from this one, by rank.
        send: how many rows each rank wants.
        receive: how many rows come from each rank.
    """

    positions: tf.Tensor
    local: tf.Tensor
    send: tf.Tensor
    receive: tf.Tensor


@tf.autograph.experimental.do_not_convert
def request_rows(table: ShardedTable, ids: tf.Tensor) -> Request:
    """Makes the request for ``ids`` (flat, any order, repeated or not).

    Raises:
        tf.errors.InvalidArgumentError: on all ranks, when one of them asks for a row that the table does not have.
    """
    table = in_place_of(table)
    unique, inverse = tf.unique(tf.cast(ids, tf.int64))
    if table.size == 1:
        count = tf.reshape(tf.size(unique), [1])
        return Request(inverse, checked_ids(table, unique), count, count)
    order, counts = by_owner(table, unique)
    wanted, sources = exchange_ids(table, tf.gather(unique, order), counts, unique, f"{table.name}/ids")
    # From the order of arrival back to the order in which the ids stand.
    positions = tf.gather(tf.math.invert_permutation(order), inverse)
    return Request(positions, wanted - table.start, sources, counts)


def by_owner(table: ShardedTable, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the order in which ids lie by their owners' ranks, stable, and how many each owner gets."""
    # An id that does not exist is sent somewhere all the same; the header says that it is wrong.
    inner = tf.constant(table.partition.bounds[1:-1], tf.int64)
    owners = tf.searchsorted(inner, tf.cast(ids, tf.int64), side="right")
    order = tf.concat(tf.dynamic_partition(tf.range(tf.size(ids)), owners, table.size), axis=0)
    return order, tf.math.bincount(owners, minlength=table.size, maxlength=table.size)


def exchange_ids(
    table: ShardedTable, ids: tf.Tensor, counts: tf.Tensor, check: tf.Tensor, name: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Send ids to their owners.

    Args:
        table: of whose rows they are the numbers.
        ids: ordered by owner.
        counts: ids for each owner.
        check: the ids to check for existence (``ids`` may be encoded).
        name: of the node in the graph.

    Returns:
        The ids that came, by rank, as int64, and how many from each.
    """
    number = tf.int32 if table.rows < 2**31 - 1 else tf.int64
    ends = tf.cumsum(counts)
    header = tf.cast(_header(table, check), number)
    # One header before every rank's ids.
    at_header = tf.reshape(((ends - counts) + HEADER * tf.range(table.size))[:, None] + tf.range(HEADER), [-1])
    at_ids = tf.range(tf.size(ids)) + HEADER * (1 + tf.repeat(tf.range(table.size), counts))
    message = tf.scatter_nd(
        tf.concat([at_header, at_ids], axis=0)[:, None],
        tf.concat([tf.tile(header, [table.size]), tf.cast(ids, number)], axis=0),
        [tf.size(ids) + HEADER * table.size],
    )
    with after(count_sent("ids", counts + HEADER, table.rank, number.size)):
        came, splits = horovod_ops.alltoall(message, counts + HEADER, name)

    begins = tf.cumsum(splits, exclusive=True)
    headers = tf.gather(came, begins[:, None] + tf.range(HEADER))
    sources = splits - HEADER
    with tf.control_dependencies([_assert_none_missing(table, headers)]):
        at = tf.range(tf.reduce_sum(sources)) + HEADER * (1 + tf.repeat(tf.range(table.size), sources))
    return tf.cast(tf.gather(came, at), tf.int64), sources


def checked_ids(table: ShardedTable, ids: tf.Tensor) -> tf.Tensor:
    """``ids``, once it is known that the table has them all; for a single process."""
    with tf.control_dependencies([_assert_none_missing(table, _header(table, ids)[None])]):
        return tf.identity(ids)


def _header(table: ShardedTable, ids: tf.Tensor) -> tf.Tensor:
    """How many ids the table does not have, and the first three of them (or -1)."""
    ids = tf.cast(ids, tf.int64)
    missing = tf.boolean_mask(ids, (ids < 0) | (ids >= table.rows))
    # What does not fit into an int32 message is named all the same, as the largest number that does.
    named = tf.clip_by_value(missing[: HEADER - 1], -(2**31), 2**31 - 1) if table.rows < 2**31 - 1 else missing[:3]
    named = tf.concat([named, -tf.ones([HEADER - 1 - tf.size(named)], tf.int64)], axis=0)
    return tf.concat([[tf.size(missing, tf.int64)], named], axis=0)


def _assert_none_missing(table: ShardedTable, headers: tf.Tensor) -> tf.Tensor:
    """Stop everybody with a message that says who asked for what."""

    def stop() -> tf.Tensor:
        ranks = tf.where(headers[:, 0] > 0)[:, 0]
        counts, named = tf.gather(headers, ranks)[:, :1], tf.gather(headers, ranks)[:, 1:]
        is_one = tf.range(HEADER - 1, dtype=counts.dtype) < counts
        ids = tf.strings.reduce_join(tf.where(is_one, tf.strings.join([" ", tf.strings.as_string(named)]), ""), axis=1)
        guilty = tf.strings.join(["rank ", tf.strings.as_string(ranks), ":", ids])
        more = tf.where(counts[:, 0] > HEADER - 1, " and more", "")
        message = tf.strings.join(
            [
                f"table {table.name} has rows 0 to {table.rows - 1}; ids out of range on ",
                tf.strings.reduce_join(tf.strings.join([guilty, more]), separator=", "),
            ]
        )
        tf.debugging.Assert(False, [message])
        return tf.constant(False)

    with tf.device("/cpu:0"):  # on a GPU an assertion does nothing
        return tf.cond(tf.reduce_all(headers[:, 0] <= 0), lambda: tf.constant(True), stop)
