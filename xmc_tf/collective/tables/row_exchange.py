"""Exchanges rows and their gradients between ranks in a chosen format, and counts the bytes."""

from typing import Literal

import tensorflow as tf
from tensorflow.python.ops.control_flow_v2_func_graphs import WhileBodyFuncGraph

from xmc_tf.collective.engines import operations
from xmc_tf.collective.meters.traffic import after, count_sent
from xmc_tf.collective.tables.row_sums import sum_rows
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.common.errors import InputError

WireFormat = Literal["fp32", "fp16", "bf16", "int8"]
# Horovod counts the numbers of an exchange in 32 bits; the MPI engine counts rows. Tests lower it.
MOST_NUMBERS = 2**31 - 1
_BYTES_PER_NUMBER = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
# A row of int8 ends with its scale, a float32: the row's largest absolute value becomes 127.
_SCALE_BYTES, _LARGEST_INT8 = 4, 127.0


def check_format(wire: str) -> None:
    if wire not in _BYTES_PER_NUMBER:
        raise InputError("unknown wire format", expected=" or ".join(_BYTES_PER_NUMBER), received=repr(wire))


def row_bytes(width: int, wire: WireFormat) -> int:
    return width * _BYTES_PER_NUMBER[wire] + (_SCALE_BYTES if wire == "int8" else 0)


def exchange(
    rows: tf.Tensor,
    send: tf.Tensor,
    receive: tf.Tensor,
    *,
    rank: int,  # this rank; rows for itself are not counted as traffic
    name: str,
    wire: WireFormat = "fp32",
    kind: str = "rows",
) -> tf.Tensor:
    """Send ``send[r]`` rows to each rank r, and return the ``receive[r]`` rows from each rank. Gradients travel back in
    the same format. In int8, a row has one scale, so numbers much smaller than its largest are lost; single numbers are
    therefore sent as fp32. ``kind`` names the traffic in the byte counts. All ranks must call it.
    """
    if wire == "int8" and rows.shape.rank == 1:
        wire = "fp32"

    @tf.custom_gradient
    def there(rows: tf.Tensor) -> tuple[tf.Tensor, object]:
        def back(upstream: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
            _check_not_in_loop(name)
            if isinstance(upstream, tf.IndexedSlices):  # from the gather that usually follows
                upstream = sum_rows(upstream.values, upstream.indices, tf.reduce_sum(receive))
            return _move(upstream, receive, rank, f"{name}/gradient", wire, f"gradients of {kind}")

        return _move(rows, send, rank, name, wire, kind), back

    if not operations.has_32_bit_sizes():
        return there(rows)
    width = rows.shape[1] if rows.shape.rank == 2 else 1
    numbers = row_bytes(width, wire) if wire == "int8" else width
    with tf.control_dependencies([_assert_countable(send, receive, numbers, name)]):
        return there(tf.identity(rows))


def _check_not_in_loop(name: str) -> None:
    if isinstance(tf.compat.v1.get_default_graph(), WhileBodyFuncGraph):
        raise InputError(
            f"the gradient of {name} is needed inside a loop of the graph, such as that of a recurrent layer's cell",
            expected="lookups in sharded embeddings outside of loops",
            fix="look up all ids before the loop, or create the embedding outside embedding_scope()",
        )


def exchange_of(
    table: ShardedTable, rows: tf.Tensor, send: tf.Tensor, receive: tf.Tensor, kind: str, wire: WireFormat = "fp32"
) -> tf.Tensor:
    """Exchange rows or other values between the ranks of a table. With a single rank, return them unchanged."""
    if table.size == 1:
        return rows
    return exchange(rows, send, receive, rank=table.rank, name=f"{table.name}/{kind}", wire=wire, kind=kind)


def _assert_countable(send: tf.Tensor, receive: tf.Tensor, width: int, name: str) -> tf.Tensor:
    most = tf.cast(tf.maximum(tf.reduce_sum(send), tf.reduce_sum(receive)), tf.int64)

    def stop() -> tf.Tensor:
        message = [
            f"{name}: one exchange would move",
            tf.strings.as_string(most),
            f"rows of {width} numbers to or from one rank; the maximum is {MOST_NUMBERS} numbers. Make the batches "
            "smaller and accumulate them (accumulate=), or use more ranks.",
        ]
        tf.debugging.Assert(False, [tf.strings.join(message, " ")])
        return tf.constant(False)

    with tf.device("/cpu:0"):  # assertions do nothing on a GPU
        return tf.cond(most * width <= MOST_NUMBERS, lambda: tf.constant(True), stop)


def _move(rows: tf.Tensor, send: tf.Tensor, rank: int, name: str, wire: WireFormat, kind: str) -> tf.Tensor:
    width = rows.shape[1] if rows.shape.rank == 2 else 1
    with after(count_sent(kind, send, rank, row_bytes(width, wire))):
        return _decoded(operations.alltoall(_encoded(rows, wire), send, name)[0], wire)


def _encoded(rows: tf.Tensor, wire: WireFormat) -> tf.Tensor:
    if wire == "fp16":
        return tf.cast(rows, tf.float16)
    if wire == "bf16":  # Horovod's all-to-all does not support bfloat16, but can send its bits as uint16
        return tf.bitcast(tf.cast(rows, tf.bfloat16), tf.uint16)
    if wire == "int8":
        scale = tf.reduce_max(tf.abs(rows), axis=1, keepdims=True) / _LARGEST_INT8
        # A row with a NaN or an infinity gets such a scale, and is NaN on the other side.
        whole = tf.cast(tf.round(tf.math.divide_no_nan(rows, scale)), tf.int8)
        return tf.concat([whole, tf.bitcast(scale[:, 0], tf.int8)], axis=1)
    return rows


def _decoded(rows: tf.Tensor, wire: WireFormat) -> tf.Tensor:
    if wire == "fp16":
        return tf.cast(rows, tf.float32)
    if wire == "bf16":
        return tf.cast(tf.bitcast(rows, tf.bfloat16), tf.float32)
    if wire == "int8":
        scale = tf.bitcast(rows[:, -_SCALE_BYTES:], tf.float32)
        return tf.cast(rows[:, :-_SCALE_BYTES], tf.float32) * scale[:, None]
    return rows
