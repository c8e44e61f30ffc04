"""Counts the bytes that this process sends to other ranks, by kind of data, and logs them to TensorBoard."""

from contextlib import AbstractContextManager, nullcontext

import keras
import tensorflow as tf

from xmc_tf.collective.engines.graph_order import in_plain_graph

_COUNTERS: dict[str, tf.Variable] = {}


def count_sent(kind: str, rows_per_rank: tf.Tensor, rank: int, row_bytes: int) -> tf.Operation | None:
    """Count the bytes of the rows that this rank sends to other ranks; see ``count_bytes``."""
    with tf.device("/cpu:0"):
        leaving = tf.reduce_sum(rows_per_rank) - rows_per_rank[rank]
        return count_bytes(kind, tf.cast(leaving, tf.int64) * row_bytes)


def count_bytes(kind: str, count: int | tf.Tensor) -> tf.Operation | None:
    """Return an operation that counts bytes. The sending operation must depend on it, or TensorFlow drops it from a
    gradient's graph. In a plain ``tf.Graph``, nothing is counted, because the counter would become one of the user's
    variables.
    """
    if in_plain_graph():
        return None
    with tf.device("/cpu:0"):
        if kind not in _COUNTERS:
            with tf.init_scope(), tf.device("/cpu:0"):
                _COUNTERS[kind] = tf.Variable(0, dtype=tf.int64, trainable=False)
        return _COUNTERS[kind].assign_add(count, read_value=False)


def after(counted: tf.Operation | None) -> AbstractContextManager:
    """Make the operations in the block run after ``counted``. With None, they need not wait."""
    return nullcontext() if counted is None else tf.control_dependencies([counted])


def bytes_sent() -> dict[str, int]:
    """Return the bytes sent to other ranks since the process started, by kind of data."""
    return {kind: int(counter.numpy()) for kind, counter in sorted(_COUNTERS.items())}


class TrafficSummaries(keras.callbacks.Callback):
    """A callback that logs the bytes sent in each epoch, and per step, to TensorBoard."""

    def __init__(self, logdir: str) -> None:
        super().__init__()
        self._writer = tf.summary.create_file_writer(str(logdir))
        self._batches = 0
        self._before: dict[str, int] = {}

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._batches, self._before = 0, bytes_sent()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._batches = batch + 1

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        optimizer = self.model.optimizer
        per_step = getattr(optimizer, "batches_per_step", getattr(optimizer, "gradient_accumulation_steps", None)) or 1
        with self._writer.as_default():
            for kind, sent in bytes_sent().items():
                new = sent - self._before.get(kind, 0)
                tf.summary.scalar(f"bytes sent/{kind}", new, step=epoch)
                tf.summary.scalar(f"bytes sent per step/{kind}", new * per_step / max(self._batches, 1), step=epoch)
        self._writer.flush()
