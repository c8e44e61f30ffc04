"""Prefetching: while a step computes, the ids and rows of the next batch are already exchanged.

The result is the same as without prefetching. Ids do not depend on the tables. Of the next batch's rows, those that
this step does not update are sent while it computes; their owner knows them, because a step updates the rows that were
requested for it. The others are sent at the beginning of the next step. So each row is sent once, and none is stale.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import tensorflow as tf
import tf_keras

from xmc_tf.collective import horovod_ops
from xmc_tf.collective.meters.traffic import after, count_sent
from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer
from xmc_tf.collective.several.collection import EmbeddingCollection, Features
from xmc_tf.collective.tables.row_requests import Request
from xmc_tf.collective.tables.table import ShardedTable, not_replicated
from xmc_tf.collective.tables.wire import WireFormat, exchange
from xmc_tf.common.errors import InputError

Prefetch = Literal["rows", "ids"]
_KEYS = {"batch", "next", "first"}


class Ahead(NamedTuple):
    """The part of a batch's exchange that was made before its step.

    Args:
        request: the request for its rows.
        send_late: for each row to send, whether it is sent in the step.
        receive_late: for each row to receive, whether it arrives in the step.
        early: the rows that have arrived.
    """

    request: Request
    send_late: tf.Tensor
    receive_late: tf.Tensor
    early: tf.Tensor


class TrainPipeline:
    """The training steps of a Keras model whose batches are exchanged one step ahead.

    ``CollectiveStrategy.prefetched`` makes it.

    Args:
        model: a model that is compiled with the strategy's optimizer, and calls one collection once.
        prefetch: "rows": ids and rows; "ids": only ids.
    """

    def __init__(self, model: tf_keras.Model, prefetch: Prefetch = "rows") -> None:
        found = [layer for layer in model._flatten_layers() if isinstance(layer, EmbeddingCollection)]
        if len(found) != 1:
            raise InputError(
                f"model {model.name!r} cannot prefetch", expected="one EmbeddingCollection", received=f"{len(found)}"
            )
        if prefetch not in ("rows", "ids"):
            raise InputError("prefetch", expected="'rows' or 'ids'", received=repr(prefetch))
        optimizer = model.optimizer
        if not isinstance(optimizer, CollectiveOptimizer):
            raise InputError(
                f"model {model.name!r} is not compiled over the ranks", fix="compile it inside strategy.scope()"
            )
        if prefetch == "rows" and optimizer.batches_per_step > 1:
            raise InputError(
                "rows are not prefetched while gradients are accumulated",
                expected="one batch in a step",
                received=f"accumulate={optimizer.batches_per_step}",
                fix="prefetch='ids'",
            )
        self._model, self._collection, self._optimizer = model, found[0], optimizer
        self.prefetch = prefetch
        self._plain_step = type(model).train_step.__get__(model)
        self._states = [_State(stack.table) for stack in self._collection.stacks]

    @classmethod
    def of(cls, model: tf_keras.Model, prefetch: Prefetch = "rows") -> "TrainPipeline":
        """Return the pipeline of a model, whose ``fit`` uses it from now on."""
        pipeline = getattr(model.train_step, "__self__", None)
        if isinstance(pipeline, TrainPipeline) and pipeline.prefetch == prefetch:
            return pipeline
        pipeline = cls(model, prefetch)
        model.train_step, model.train_function = pipeline.train_step, None
        return pipeline

    def batches(self, data: tf.data.Dataset) -> tf.data.Dataset:
        """Return batches, each with the inputs of the next one."""
        # The last batch has no next one; the exchange of any other does no harm.
        pairs = data.concatenate(data.take(1)).window(2, shift=1, drop_remainder=True)

        def pair(number: tf.Tensor, *window: Any) -> dict[str, Any]:
            both = tf.data.Dataset.zip(window if len(window) > 1 else window[0])
            this, following = both.take(1).get_single_element(), both.skip(1).get_single_element()
            x, _, _ = tf_keras.utils.unpack_x_y_sample_weight(following)
            return {"batch": this, "next": x, "first": number == 0}

        def flat(number: tf.Tensor, window: Any) -> dict[str, Any]:
            return pair(number, *window) if isinstance(window, tuple) else pair(number, window)

        return pairs.enumerate().map(flat).prefetch(2)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Run a step; ordinary batches are trained without prefetching."""
        if not (isinstance(data, Mapping) and set(data) == _KEYS):
            return self._plain_step(data)
        return self._step(data["batch"], data["next"], data["first"])

    @tf.autograph.experimental.do_not_convert
    def _step(self, batch: Any, following: Any, first: tf.Tensor) -> dict[str, tf.Tensor]:
        x, y, sample_weight = tf_keras.utils.unpack_x_y_sample_weight(batch)
        model, stacks, wire = self._model, self._collection.stacks, self._collection.wire
        ready = self._ready(x, first)
        rows = [_rows_now(stack.table, one, wire) for stack, one in zip(stacks, ready, strict=True)]
        self._look_ahead(following, ready)
        sharded = [number for number, stack in enumerate(stacks) if stack.table.size > 1]
        with tf.GradientTape() as tape:
            tape.watch([rows[number] for number in sharded])
            # Rows that are not exchanged are read under the tape.
            given = [rows[number] if number in sharded else None for number in range(len(stacks))]
            with self._collection.using([one.request for one in ready], given):
                predicted = model(x, training=True)
            loss = model.compute_loss(x, y, predicted, sample_weight)
            scaled = self._optimizer.get_scaled_loss(loss)
        tables = [stacks[number].table for number in sharded]
        own = {id(table.variable) for table in tables}
        others = [variable for variable in model.trainable_variables if id(variable) not in own]
        gradients = tape.gradient(scaled, [*(rows[number] for number in sharded), *others])
        of_tables = [
            _send_back(table, ready[number].request, gradient, wire)
            for number, table, gradient in zip(sharded, tables, gradients[: len(sharded)], strict=True)
        ]
        self._optimizer.apply_gradients(
            zip([*of_tables, *gradients[len(sharded) :]], [*(table.variable for table in tables), *others], strict=True)
        )
        return model.compute_metrics(x, y, predicted, sample_weight)

    def _ready(self, x: Any, first: tf.Tensor) -> list[Ahead]:
        """Return what was exchanged during the step before or, in a first step, exchange the ids now."""

        def now() -> list[Ahead]:
            requests = self._collection.requests(_checked(x))
            return [state.nothing_early(request) for state, request in zip(self._states, requests, strict=True)]

        # The first step is the same on all ranks, so all of them take the same branch.
        return tf.cond(first, now, lambda: [state.read() for state in self._states])

    def _look_ahead(self, following: Any, ready: list[Ahead]) -> None:
        """Exchange the ids of the next batch, and the rows that this step does not update."""
        requests = self._collection.requests(_checked(following))
        for stack, state, request, this in zip(self._collection.stacks, self._states, requests, ready, strict=True):
            if stack.table.size > 1 and self.prefetch == "rows":
                state.write(_early_rows(stack.table, request, this.request, self._collection.wire))
            else:
                state.write(state.nothing_early(request))


class _State:
    """The part of a stack's exchange that is kept from one step to the next."""

    def __init__(self, table: ShardedTable) -> None:
        self._table = table
        shapes: list[tuple[list[int | None], tf.DType]] = [
            ([None], tf.int32),
            ([None], tf.int64),
            ([table.size], tf.int32),
            ([table.size], tf.int32),
            ([None], tf.bool),
            ([None], tf.bool),
            ([None, table.dim], tf.float32),
        ]
        with tf.init_scope(), not_replicated():
            self._variables = [
                tf.Variable(tf.zeros([size or 0 for size in shape], dtype), shape=shape, trainable=False)
                for shape, dtype in shapes
            ]

    def nothing_early(self, request: Request) -> Ahead:
        """Return a request all rows of which are sent in its step."""
        request = Request(
            tf.cast(request.positions, tf.int32),
            tf.cast(request.local, tf.int64),
            tf.cast(request.send, tf.int32),
            tf.cast(request.receive, tf.int32),
        )
        all_sent, all_received = (tf.fill([tf.reduce_sum(count)], True) for count in (request.send, request.receive))
        return Ahead(request, all_sent, all_received, tf.zeros([0, self._table.dim]))

    def read(self) -> Ahead:
        """Return what the step before has written."""
        values = [variable.read_value() for variable in self._variables]
        return Ahead(Request(*values[:4]), *values[4:])

    def write(self, ahead: Ahead) -> None:
        """Keep this for the next step."""
        for variable, value in zip(self._variables, [*ahead.request, *ahead[1:]], strict=True):
            variable.assign(tf.cast(value, variable.dtype), read_value=False)


def _early_rows(table: ShardedTable, request: Request, this: Request, wire: WireFormat) -> Ahead:
    """Return the next step's request, with the rows that this step does not update."""
    updated = tf.sort(this.local)
    at = tf.minimum(tf.searchsorted(updated, request.local), tf.maximum(tf.size(updated) - 1, 0))
    late = tf.equal(tf.gather(tf.concat([updated, [-1]], axis=0), at), request.local)
    name = f"{table.name}/late"
    with after(count_sent("marks of late rows", request.send, table.rank, 1)):
        marks, _ = horovod_ops.alltoall(tf.cast(late, tf.uint8), request.send, name)
    receive_late = tf.cast(marks, tf.bool)
    early = _exchange_some(table, request, ~late, ~receive_late, "early rows", wire)
    return Ahead(request, late, receive_late, early)


def _rows_now(table: ShardedTable, ahead: Ahead, wire: WireFormat) -> tf.Tensor:
    """Return the rows of a batch: those that have arrived, and the others, which are exchanged now."""
    if table.size == 1:
        return tf.zeros([0, table.dim])
    late = _exchange_some(table, ahead.request, ahead.send_late, ahead.receive_late, "rows", wire)
    places = [tf.cast(tf.where(mask)[:, 0], tf.int32) for mask in (~ahead.receive_late, ahead.receive_late)]
    rows = tf.scatter_nd(
        tf.concat(places, axis=0)[:, None],
        tf.concat([ahead.early, late], axis=0),
        [tf.size(ahead.receive_late), table.dim],
    )
    return tf.ensure_shape(rows, [None, table.dim])


def _exchange_some(
    table: ShardedTable, request: Request, sent: tf.Tensor, received: tf.Tensor, kind: str, wire: WireFormat
) -> tf.Tensor:
    """Exchange the marked rows of a request."""
    ranks = tf.range(table.size)
    send, receive = (
        tf.math.bincount(tf.boolean_mask(tf.repeat(ranks, counts), mask), minlength=table.size, maxlength=table.size)
        for counts, mask in ((request.send, sent), (request.receive, received))
    )
    rows = tf.gather(table.variable, tf.boolean_mask(request.local, sent))
    name = f"{table.name}/{kind}"
    return tf.stop_gradient(exchange(rows, send, receive, rank=table.rank, name=name, wire=wire, kind=kind))


def _send_back(
    table: ShardedTable, request: Request, gradient: tf.Tensor | tf.IndexedSlices | None, wire: WireFormat
) -> tf.IndexedSlices:
    """Return the gradient of this rank's rows, from those that each rank has of the rows that it received."""
    count = tf.reduce_sum(request.receive)
    if gradient is None:
        gradient = tf.zeros([count, table.dim])
    if isinstance(gradient, tf.IndexedSlices):
        gradient = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, count)
    moved = exchange(
        gradient,
        request.receive,
        request.send,
        rank=table.rank,
        name=f"{table.name}/gradients",
        wire=wire,
        kind="gradients of rows",
    )
    return tf.IndexedSlices(moved, request.local, tf.constant([table.local_rows, table.dim], tf.int64))


def _checked(inputs: Any) -> Features:
    if not isinstance(inputs, Mapping):
        raise InputError(
            "the inputs of a model that prefetches",
            expected="a dictionary with the ids of all features",
            received=type(inputs).__name__,
        )
    return inputs
