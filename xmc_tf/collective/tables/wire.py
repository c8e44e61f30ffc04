"""How rows travel between ranks: in what format, how gradients travel back, and how many bytes that was."""

from typing import Literal

import tensorflow as tf

from xmc_tf.collective import horovod_ops
from xmc_tf.collective.meters.traffic import after, count_sent
from xmc_tf.common.errors import InputError

WireFormat = Literal["fp32", "fp16", "bf16"]
# What one rank sends or gets in one exchange is counted in 32 bits, by MPI and so by Horovod. Tests lower it.
MOST_NUMBERS = 2**31 - 1
BYTES_PER_NUMBER = {"fp32": 4, "fp16": 2, "bf16": 2}


def check_format(wire: str) -> None:
    """Says what is possible when ``wire`` is not."""
    if wire not in BYTES_PER_NUMBER:
        raise InputError("wire format", expected=" or ".join(BYTES_PER_NUMBER), received=repr(wire))


def exchange(
    rows: tf.Tensor,
    send: tf.Tensor,
    receive: tf.Tensor,
    *,
    rank: int,
    name: str,
    wire: WireFormat = "fp32",
    kind: str = "rows",
) -> tf.Tensor:
    """Send ``send[r]`` of the rows to rank r and gives the ``receive[r]`` that came from it; differentiable.

    The gradient travels the same way back in the same format.

    Args:
        rows: ``[sum(send)]`` or ``[sum(send), dim]``, ordered by destination, float32.
        send: rows for each rank.
        receive: rows from each rank, as both sides know beforehand.
        rank: this one; what it sends to itself is not counted.
        name: of the node in the graph.
        wire: half the bytes for less precision with fp16 and bf16.
        kind: under what the bytes are counted.

    Returns:
        ``[sum(receive)]`` or ``[sum(receive), dim]``, ordered by source.

    Raises:
        tf.errors.InvalidArgumentError: on the rank where it is more than an exchange can count.
    """

    @tf.custom_gradient
    def there(rows: tf.Tensor) -> tuple[tf.Tensor, object]:
        def back(upstream: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
            if isinstance(upstream, tf.IndexedSlices):  # of the gather that usually follows
                count = tf.reduce_sum(receive)
                upstream = tf.math.unsorted_segment_sum(upstream.values, upstream.indices, count)
            return _move(upstream, receive, rank, f"{name}/gradient", wire, f"gradients of {kind}")

        return _move(rows, send, rank, name, wire, kind), back

    width = rows.shape[1] if rows.shape.rank == 2 else 1
    with tf.control_dependencies([_assert_countable(send, receive, width, name)]):
        return there(tf.identity(rows))


def _assert_countable(send: tf.Tensor, receive: tf.Tensor, width: int, name: str) -> tf.Tensor:
    """Stop with a message, before Horovod would go on with counts that have run over."""
    most = tf.cast(tf.maximum(tf.reduce_sum(send), tf.reduce_sum(receive)), tf.int64)

    def stop() -> tf.Tensor:
        message = [
            f"{name}: one exchange would move",
            tf.strings.as_string(most),
            f"rows of {width} numbers to or from one worker; at most {MOST_NUMBERS} numbers can be counted. Make the "
            "batches smaller and accumulate them (accumulate=), or use more workers.",
        ]
        tf.debugging.Assert(False, [tf.strings.join(message, " ")])
        return tf.constant(False)

    with tf.device("/cpu:0"):  # on a GPU an assertion does nothing
        return tf.cond(most * width <= MOST_NUMBERS, lambda: tf.constant(True), stop)


def _move(rows: tf.Tensor, send: tf.Tensor, rank: int, name: str, wire: WireFormat, kind: str) -> tf.Tensor:
    """One all-to-all in the given format."""
    width = rows.shape[1] if rows.shape.rank == 2 else 1
    with after(count_sent(kind, send, rank, width * BYTES_PER_NUMBER[wire])):
        return _decoded(horovod_ops.alltoall(_encoded(rows, wire), send, name)[0], wire)


def _encoded(rows: tf.Tensor, wire: WireFormat) -> tf.Tensor:
    if wire == "fp16":
        return tf.cast(rows, tf.float16)
    if wire == "bf16":  # Horovod's all-to-all knows no bfloat16, and moves any 16 bits as they are
        return tf.bitcast(tf.cast(rows, tf.bfloat16), tf.uint16)
    return rows


def _decoded(rows: tf.Tensor, wire: WireFormat) -> tf.Tensor:
    if wire == "fp16":
        return tf.cast(rows, tf.float32)
    if wire == "bf16":
        return tf.cast(tf.bitcast(rows, tf.bfloat16), tf.float32)
    return rows
