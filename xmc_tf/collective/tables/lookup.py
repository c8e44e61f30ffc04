"""Differentiable lookups in a sharded table, which can combine the rows of a bag."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from xmc_tf.collective.engines import operations
from xmc_tf.collective.meters.traffic import after, count_sent
from xmc_tf.collective.tables.bags import Combiner, DenseOrRagged, Ids, bags, combine, flat_ids
from xmc_tf.collective.tables.row_exchange import WireFormat, check_format, exchange_of
from xmc_tf.collective.tables.row_sums import EachId, UniqueIds
from xmc_tf.collective.tables.table import ShardedTable, serving_or_sharded
from xmc_tf.common.errors import InputError

# Before its ids, a rank sends how many different ids are out of range, and the first three of them, so that all ranks
# raise an error at the same point. Then follows a digest of all its ids, in two numbers.
NAMED, HEADER = 3, 6


class IdsOutOfRangeError(tf.errors.InvalidArgumentError, ValueError):
    """Raised for ids out of range. TensorFlow converts a ValueError in an op to InvalidArgumentError, so it is both."""


@contextmanager
def ids_out_of_range_in_one_line() -> Iterator[None]:
    """Replace TensorFlow's long error about ids out of range by a single line, which is the same on all ranks."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        line = re.search(r"(table [^\n]+? has rows \d+ to \d+; )?ids out of range on rank [^\n]*", str(error))
        if line is None:
            raise
        short = InputError(line[0].rstrip("']"))  # TensorFlow quotes the text
        short.on_all_ranks = True
    else:
        return
    raise short


class RowRequest(NamedTuple):
    positions: tf.Tensor  # of each id's row among the received rows
    local: tf.Tensor  # the local rows to send, by rank
    send: tf.Tensor  # the number of rows to send to each rank
    receive: tf.Tensor  # the number of rows to receive from each rank
    repeat: tf.Tensor | None = None  # which of ``local`` to send, if each of them has one gradient over all ranks


@tf.autograph.experimental.do_not_convert
def request_rows(table: ShardedTable, ids: tf.Tensor) -> RowRequest:
    """Return the request for flat ids, which may repeat. Invalid ids fail on all ranks. All ranks must call it."""
    ids = tf.cast(ids, tf.int64)
    if table.size > 1:
        return request_from_owners(table, ids, lambda wanted: wanted - table.start, check=True)
    unique, inverse = (ids, tf.range(tf.size(ids))) if table.each_id else tf.unique(ids)
    count = tf.reshape(tf.size(unique), [1])
    return RowRequest(inverse, checked_ids(table, unique), count, count)


def request_from_owners(
    table: ShardedTable, ids: tf.Tensor, local: Callable[[tf.Tensor], tf.Tensor], *, check: bool
) -> RowRequest:
    """Return the request for flat int64 ids. ``local`` maps ids to their owner's local rows. All ranks must call it."""
    if _in_xla():
        raise InputError(
            f"table {table.name!r}: a lookup inside tf.function(jit_compile=True)",
            expected="XLA for operations of one rank: it cannot compile exchanges between ranks",
            fix="leave jit_compile out, or decorate a function that gets the rows, not their ids",
        )
    bounds = table.partition.bounds[1:-1].astype(np.int64)

    def ask(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = (EachId if table.each_id else UniqueIds)(ids, bounds)
        header = _header(table, ids if check else ids[:0], _digest(ids) if table.each_id else None)
        return _message(table, found.values, found.counts, header), found.counts, found.positions

    message, counts, positions = tf.numpy_function(ask, [ids], [_number_type(table), tf.int32, tf.int32])
    for tensor, shape in ((message, [None]), (counts, [table.size]), (positions, ids.shape)):
        tensor.set_shape(shape)
    wanted, sources, same = _exchanged(table, message, counts, f"{table.name}/ids")
    if not table.each_id:
        return RowRequest(positions, local(wanted), sources, counts)
    # In one process, an id that all ranks look up once, such as a position, has a single gradient.
    count = tf.where(same, tf.size(wanted) // table.size, tf.size(wanted))
    return RowRequest(
        positions, local(wanted[:count]), sources, counts, tf.range(tf.size(wanted)) % tf.maximum(count, 1)
    )


@tf.autograph.experimental.do_not_convert
def check_ids_of_all_ranks(tables: Sequence[ShardedTable], ids: Sequence[tf.Tensor], size: int, name: str) -> tf.Tensor:
    """Check ids of replicated tables, so that all ranks raise an error for an invalid id. All ranks must call it."""

    def headers_of(*ids: np.ndarray) -> np.ndarray:
        return np.concatenate([_header(table, of_table) for table, of_table in zip(tables, ids, strict=True)] * size)

    def check(headers: np.ndarray) -> np.bool_:
        for number, table in enumerate(tables):
            _check(table, headers.reshape(size, len(tables), HEADER)[:, number])
        return np.True_

    own = tf.numpy_function(headers_of, list(ids), tf.int64)
    own.set_shape([size * len(tables) * HEADER])
    counts = tf.fill([size], len(tables) * HEADER)
    with after(count_sent("ids", counts, 0, own.dtype.size)):  # any rank will do, because the counts are equal
        received, _ = operations.alltoall(own, counts, name)
    return tf.numpy_function(check, [received], tf.bool)


def by_owner(table: ShardedTable, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a permutation that sorts the ids stably by owner, and the number of ids of each owner."""
    # An id out of range is sent to some rank too, and the header reports it.
    inner = tf.constant(table.partition.bounds[1:-1], tf.int64)
    owners = tf.searchsorted(inner, tf.cast(ids, tf.int64), side="right")
    order = tf.concat(tf.dynamic_partition(tf.range(tf.size(ids)), owners, table.size), axis=0)
    return order, tf.math.bincount(owners, minlength=table.size, maxlength=table.size)


def exchange_ids(
    table: ShardedTable, ids: tf.Tensor, counts: tf.Tensor, check: tf.Tensor, name: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Send ids, sorted by owner. Return the received ids and how many each rank sent. All ranks must call it."""

    def message_of(ids: np.ndarray, counts: np.ndarray, check: np.ndarray) -> np.ndarray:
        return _message(table, ids, counts, _header(table, check))

    message = tf.numpy_function(message_of, [ids, counts, tf.cast(check, tf.int64)], _number_type(table))
    message.set_shape([None])
    return _exchanged(table, message, counts, name)[:2]


def checked_ids(table: ShardedTable, ids: tf.Tensor) -> tf.Tensor:
    """Return ``ids`` after a range check that uses only standard operations, for a single process or a server. In a
    function that XLA compiles, nothing is checked, as in Keras: XLA has no assertions.
    """

    def stop() -> tf.Tensor:
        named = tf.boolean_mask(ids, wrong)
        words = tf.strings.as_string(named)
        if table.members:
            names = [_member_name(table, number) for number in range(len(table.members))]
            words = tf.gather(tf.constant(names), tf.clip_by_value(-1 - named, 0, len(names) - 1))
        first = tf.strings.reduce_join(words[:NAMED], separator=" ")
        more = tf.where(tf.size(named) > NAMED, " and more", "")
        tf.debugging.Assert(False, [tf.strings.join([f"{_prefix(table)} on rank 0: ", first, more])])
        return tf.constant(False)

    if _in_xla():
        return ids
    wrong = (ids < 0) | (ids >= table.rows)
    with tf.device("/cpu:0"):  # assertions do nothing on a GPU
        checked = tf.cond(tf.reduce_any(wrong), stop, lambda: tf.constant(True))
    with tf.control_dependencies([checked]):
        return tf.identity(ids)


def _in_xla() -> bool:
    """Return whether a function with ``jit_compile=True`` is being traced."""
    return bool(GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def _number_type(table: ShardedTable) -> tf.DType:
    return tf.int32 if table.rows < 2**31 - 1 else tf.int64


def _message(table: ShardedTable, ids: np.ndarray, counts: np.ndarray, header: np.ndarray) -> np.ndarray:
    message = np.empty(len(ids) + HEADER * table.size, _number_type(table).as_numpy_dtype)
    low, at = 0, 0
    for count in counts.tolist():
        message[at : at + HEADER] = header
        message[at + HEADER : at + HEADER + count] = ids[low : low + count]
        low, at = low + count, at + HEADER + count
    return message


def _exchanged(
    table: ShardedTable, message: tf.Tensor, counts: tf.Tensor, name: str
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the received ids, how many each rank sent, and whether all ranks have the same digest."""

    def unpack(received: np.ndarray, splits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.bool_]:
        parts = np.split(received, np.cumsum(splits[:-1]))
        headers = np.stack([part[:HEADER] for part in parts])
        _check(table, headers)
        digests = headers[:, 1 + NAMED :]
        same = digests.any() and (digests == digests[0]).all()
        ids = np.concatenate([part[HEADER:] for part in parts], dtype=np.int64)
        return ids, splits - np.int32(HEADER), np.bool_(same)

    with after(count_sent("ids", counts + HEADER, table.rank, message.dtype.size)):
        received, splits = operations.alltoall(message, counts + HEADER, name)
    ids, sources, same = tf.numpy_function(unpack, [received, splits], [tf.int64, tf.int32, tf.bool])
    for tensor, shape in ((ids, [None]), (sources, [table.size]), (same, [])):
        tensor.set_shape(shape)
    return ids, sources, same


def _digest(ids: np.ndarray) -> np.ndarray | None:
    """Return a digest of ids if they are distinct: ids of examples that happen to be the same on all ranks repeat."""
    if len(ids) == 0 or len(np.unique(ids)) < len(ids):
        return None
    return np.frombuffer(hashlib.blake2b(ids.tobytes(), digest_size=8).digest(), np.int32)


def _header(table: ShardedTable, ids: np.ndarray, digest: np.ndarray | None = None) -> np.ndarray:
    """Return the number of distinct ids out of range, the first three of them, padded with -1, and the digest or 0."""
    header = np.array([0, -1, -1, -1, *([0, 0] if digest is None else digest)], np.int64)
    if len(ids) and (ids.min() < 0 or ids.max() >= table.rows):
        missing = list(dict.fromkeys(ids[(ids < 0) | (ids >= table.rows)].tolist()))
        named = np.array(missing[:NAMED], np.int64)
        if table.rows < 2**31 - 1:  # ids that do not fit into an int32 message are clipped to its range
            named = np.clip(named, -(2**31), 2**31 - 1)
        header[0], header[1 : 1 + len(named)] = len(missing), named
    return header


def _check(table: ShardedTable, headers: np.ndarray) -> None:
    if not (headers[:, 0] > 0).any():
        return
    culprits = []
    for rank, (count, *named) in enumerate(headers[:, : 1 + NAMED].tolist()):
        if count > 0:
            words = [_member_name(table, -1 - one) if table.members else str(one) for one in named[:count]]
            culprits.append(f"rank {rank}: {' '.join(words)}{' and more' if count > NAMED else ''}")
    raise IdsOutOfRangeError(None, None, f"{_prefix(table)} on {', '.join(culprits)}")


def _prefix(table: ShardedTable) -> str:
    return ("" if table.members else f"table {table.name} has rows 0 to {table.rows - 1}; ") + "ids out of range"


def _member_name(table: ShardedTable, number: int) -> str:
    """Return the name and row range of a stacked table, as they appear in errors about its ids."""
    member = table.members[min(max(number, 0), len(table.members) - 1)]
    return f"of table {member.name} (rows 0 to {member.rows - 1})"


@tf.autograph.experimental.do_not_convert
def lookup(
    table: ShardedTable,
    ids: Ids,
    combiner: Combiner = None,
    *,
    weights: DenseOrRagged | None = None,
    wire: WireFormat = "fp32",
    request: RowRequest | None = None,
) -> DenseOrRagged:
    """Return the rows of this rank's ids, which may be none. An invalid id raises an error on all ranks. An empty bag
    gives zeros. ``request`` is the request for the flat ids, if they have been exchanged before. All ranks must call
    it.
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
    """Return the unique rows of a request. ``tf.gather(rows, request.positions)`` then gives one row per id."""
    rows = table.gather(request.local)
    if request.repeat is not None:
        rows = tf.gather(rows, request.repeat)
    return exchange_of(table, rows, request.send, request.receive, "rows", wire)
