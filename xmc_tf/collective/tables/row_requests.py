"""Requests for rows: one exchange of ids, after which each rank knows which rows to send and to expect."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.meters.traffic import after, count_sent
from xmc_tf.collective.tables.serving_tables import serving_or_sharded
from xmc_tf.collective.tables.table import ShardedTable

# Before its ids, a rank sends the number of its ids that are out of range, and the first three of them. So all ranks
# raise an error at the same point, and none waits for a rank that has failed.
HEADER = 4


class Request(NamedTuple):
    """A request for the rows of a batch of ids.

    Args:
        positions: the position of each id's row among the received rows.
        local: the local numbers of the rows to send, by rank.
        send: the number of rows to send to each rank.
        receive: the number of rows to receive from each rank.
    """

    positions: tf.Tensor
    local: tf.Tensor
    send: tf.Tensor
    receive: tf.Tensor


@tf.autograph.experimental.do_not_convert
def request_rows(table: ShardedTable, ids: tf.Tensor) -> Request:
    """Return the request for flat ``ids``, in any order and possibly repeated; collective.

    Raises:
        tf.errors.InvalidArgumentError: on all ranks, if an id on any of them is out of range.
    """
    table = serving_or_sharded(table)
    ids = tf.cast(ids, tf.int64)
    if table.size > 1:
        return request_from_owners(table, ids, lambda wanted: wanted - table.start, check=True)
    unique, inverse = tf.unique(ids)
    count = tf.reshape(tf.size(unique), [1])
    return Request(inverse, checked_ids(table, unique), count, count)


def request_from_owners(
    table: ShardedTable, ids: tf.Tensor, local: Callable[[tf.Tensor], tf.Tensor], *, check: bool
) -> Request:
    """Return the request for flat ids of a table on several ranks; collective.

    Args:
        table: the table, whose partition determines the owner of each id.
        ids: int64, in any order and possibly repeated.
        local: returns the local rows of ids that this rank owns.
        check: whether ids must be row numbers of the table.
    """
    unique, inverse = tf.unique(ids)
    order, counts = by_owner(table, unique)
    checked = unique if check else unique[:0]
    wanted, sources = exchange_ids(table, tf.gather(unique, order), counts, checked, f"{table.name}/ids")
    # From the order of arrival to the order of the ids.
    positions = tf.gather(tf.math.invert_permutation(order), inverse)
    return Request(positions, local(wanted), sources, counts)


@tf.autograph.experimental.do_not_convert
def check_ids_of_all_ranks(tables: Sequence[ShardedTable], ids: Sequence[tf.Tensor], size: int, name: str) -> tf.Tensor:
    """Check the ids for replicated tables on all ranks, which exchange no ids otherwise; collective.

    Without it, a rank with a wrong id would fail alone, and the others would wait for it.

    Args:
        tables: the tables, of which each rank holds all rows.
        ids: flat ids for each table.
        size: the number of ranks.
        name: the name of the graph node.

    Raises:
        tf.errors.InvalidArgumentError: on all ranks, if an id on any of them is out of range.
    """
    own = tf.concat([_header(table, of_table) for table, of_table in zip(tables, ids, strict=True)], axis=0)
    counts = tf.fill([size], len(tables) * HEADER)
    with after(count_sent("ids", counts, 0, own.dtype.size)):  # the counts are equal, so any rank will do
        received, _ = operations.alltoall(tf.tile(own, [size]), counts, name)
    headers = tf.reshape(received, [size, len(tables), HEADER])
    return tf.reduce_all(tf.stack([_assert_in_range(table, headers[:, at]) for at, table in enumerate(tables)]))


def by_owner(table: ShardedTable, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a stable order of the ids by owner, and the number of ids of each owner."""
    # An id out of range is sent to some rank, too; the header reports it.
    inner = tf.constant(table.partition.bounds[1:-1], tf.int64)
    owners = tf.searchsorted(inner, tf.cast(ids, tf.int64), side="right")
    order = tf.concat(tf.dynamic_partition(tf.range(tf.size(ids)), owners, table.size), axis=0)
    return order, tf.math.bincount(owners, minlength=table.size, maxlength=table.size)


def exchange_ids(
    table: ShardedTable, ids: tf.Tensor, counts: tf.Tensor, check: tf.Tensor, name: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Send ids to their owners.

    Args:
        table: the table.
        ids: the ids to send, ordered by owner; they may be encoded.
        counts: the number of ids for each owner.
        check: the ids to check against the table's range.
        name: the name of the graph node.

    Returns:
        The received ids, by rank, as int64, and their number from each rank.
    """
    number = tf.int32 if table.rows < 2**31 - 1 else tf.int64
    ends = tf.cumsum(counts)
    header = tf.cast(_header(table, check), number)
    # A header precedes the ids for each rank.
    at_header = tf.reshape(((ends - counts) + HEADER * tf.range(table.size))[:, None] + tf.range(HEADER), [-1])
    at_ids = tf.range(tf.size(ids)) + HEADER * (1 + tf.repeat(tf.range(table.size), counts))
    message = tf.scatter_nd(
        tf.concat([at_header, at_ids], axis=0)[:, None],
        tf.concat([tf.tile(header, [table.size]), tf.cast(ids, number)], axis=0),
        [tf.size(ids) + HEADER * table.size],
    )
    with after(count_sent("ids", counts + HEADER, table.rank, number.size)):
        received, splits = operations.alltoall(message, counts + HEADER, name)

    begins = tf.cumsum(splits, exclusive=True)
    headers = tf.gather(received, begins[:, None] + tf.range(HEADER))
    sources = splits - HEADER
    with tf.control_dependencies([_assert_in_range(table, headers)]):
        at = tf.range(tf.reduce_sum(sources)) + HEADER * (1 + tf.repeat(tf.range(table.size), sources))
    return tf.cast(tf.gather(received, at), tf.int64), sources


def checked_ids(table: ShardedTable, ids: tf.Tensor) -> tf.Tensor:
    """Return ``ids`` after checking their range; for a single process."""
    with tf.control_dependencies([_assert_in_range(table, _header(table, ids)[None])]):
        return tf.identity(ids)


def _header(table: ShardedTable, ids: tf.Tensor) -> tf.Tensor:
    """Return the number of ids out of range, and the first three of them, padded with -1."""
    ids = tf.cast(ids, tf.int64)
    missing = tf.boolean_mask(ids, (ids < 0) | (ids >= table.rows))
    # Ids that do not fit into an int32 message are clipped to its range.
    named = tf.clip_by_value(missing[: HEADER - 1], -(2**31), 2**31 - 1) if table.rows < 2**31 - 1 else missing[:3]
    named = tf.concat([named, -tf.ones([HEADER - 1 - tf.size(named)], tf.int64)], axis=0)
    return tf.concat([[tf.size(missing, tf.int64)], named], axis=0)


def _assert_in_range(table: ShardedTable, headers: tf.Tensor) -> tf.Tensor:
    """Assert on all ranks that no id is out of range; the message names ranks and ids."""

    def stop() -> tf.Tensor:
        ranks = tf.where(headers[:, 0] > 0)[:, 0]
        counts, named = tf.gather(headers, ranks)[:, :1], tf.gather(headers, ranks)[:, 1:]
        is_one = tf.range(HEADER - 1, dtype=counts.dtype) < counts
        words = _member_names(table, named) if table.members else tf.strings.as_string(named)
        ids = tf.strings.reduce_join(tf.where(is_one, tf.strings.join([" ", words]), ""), axis=1)
        culprits = tf.strings.join(["rank ", tf.strings.as_string(ranks), ":", ids])
        more = tf.where(counts[:, 0] > HEADER - 1, " and more", "")
        message = tf.strings.join(
            [
                "" if table.members else f"table {table.name} has rows 0 to {table.rows - 1}; ",
                "ids out of range on ",
                tf.strings.reduce_join(tf.strings.join([culprits, more]), separator=", "),
            ]
        )
        tf.debugging.Assert(False, [message])
        return tf.constant(False)

    with tf.device("/cpu:0"):  # assertions do nothing on a GPU
        return tf.cond(tf.reduce_all(headers[:, 0] <= 0), lambda: tf.constant(True), stop)


def _member_names(table: ShardedTable, codes: tf.Tensor) -> tf.Tensor:
    """Return the names of the stacked tables in which ids are out of range: -1 stands for an id of the first one."""
    names = [f"of table {member.name} (rows 0 to {member.rows - 1})" for member in table.members]
    return tf.gather(tf.constant(names), tf.clip_by_value(-1 - codes, 0, len(names) - 1))
