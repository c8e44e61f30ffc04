"""One training step as a graph: from a batch to updated variables."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from xmc_tf.collective.tables.every_row import FusedRows, RowStep
from xmc_tf.matcher.candidates.batches import Batch
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.losses import head_loss
from xmc_tf.params import MatcherParams

# A batch in the graph: ids, mask, candidates and their row splits, targets, weights, number of documents,
# seed of dropout.
_SIGNATURE = [
    tf.TensorSpec([None, None], tf.int32),
    tf.TensorSpec([None, None], tf.int32),
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.float32),
    tf.TensorSpec([None], tf.float32),
    tf.TensorSpec([], tf.float32),
    tf.TensorSpec([2], tf.int64),
]

# XLA compiles once per width, so widths are rounded up to multiples of this.
_XLA_WIDTH = 16


def make_train_batch(
    encoder: Any,
    head: LabelHead,
    optimizer: Any,
    variables: list[tf.Variable],
    params: MatcherParams,
    pad_id: int,
    every_node: bool,
    in_place: FusedRows | None = None,  # see ``head_in_place``
) -> Callable[..., tf.Tensor]:
    """Return a function that trains on one batch.

    It takes what ``tensors_of`` returns, and a seed of dropout, int64 [2]. It returns this rank's [loss, documents,
    tokens, tokens with padding]. With ``every_node``, all nodes are candidates, and batches contain only positives.
    """
    loss_of = head_loss(params.loss_function)

    def encode(ids: tf.Tensor, mask: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        # The encoder keeps this graph, so the next level does not trace all its layers again.
        return encoder.in_graph(ids, mask, training=True, seed=seed)

    if params.xla:

        @tf.function(jit_compile=True, autograph=False)
        def encode(ids: tf.Tensor, mask: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            return encoder(ids, mask, training=True, seed=seed, packed=False)

    @tf.function(input_signature=_SIGNATURE, autograph=False)
    def train_batch(
        ids: tf.Tensor,
        mask: tf.Tensor,
        candidates: tf.Tensor,
        splits: tf.Tensor,
        targets: tf.Tensor,
        weights: tf.Tensor,
        global_count: tf.Tensor,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        documents, width = tf.shape(ids)[0], tf.shape(ids)[1]
        # Encoders reject empty batches, but a rank without documents must still take part in the step.
        empty = tf.maximum(0, 1 - documents)
        ids = tf.pad(ids, [[0, empty], [0, 0]], constant_values=pad_id)
        seen = tf.pad(mask, [[0, empty], [0, 0]], constant_values=1)
        if params.xla:
            more = tf.minimum(-width % _XLA_WIDTH, encoder.max_length - width)
            ids, seen = tf.pad(ids, [[0, 0], [0, more]], constant_values=pad_id), tf.pad(seen, [[0, 0], [0, more]])
            width += more
        ragged = tf.RaggedTensor.from_row_splits(candidates, splits, validate=False)
        with tf.GradientTape() as tape:
            vectors = encode(ids, seen, seed)[:documents]
            factors = ragged.with_flat_values(weights)
            if every_node:
                now = None if in_place is None else (in_place, _row_step(optimizer, params, global_count))
                losses = head.losses_of_all(vectors, ragged, loss_of, factors, now)
            else:
                losses = head.losses(vectors, ragged, ragged.with_flat_values(targets), loss_of, factors)
            loss = tf.reduce_sum(losses) / global_count
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        counts = [documents, tf.reduce_sum(mask), documents * width]
        return tf.stack([loss, *(tf.cast(count, tf.float32) for count in counts)])

    return train_batch


def head_in_place(head: LabelHead, params: MatcherParams) -> FusedRows | None:
    """Return what updates the head's rows while their gradients are computed, if the parameters ask for it."""
    if not params.trains_head_in_place:
        return None
    return FusedRows(head.table, head.every_row.wire, epsilon=params.adam_epsilon, weight_decay=params.weight_decay)


def _row_step(optimizer: Any, params: MatcherParams, global_count: tf.Tensor) -> RowStep:
    """Return the step that the optimizer is about to make, with the head's learning rate."""
    rate = tf.convert_to_tensor(optimizer.learning_rate) * (params.head_rate / params.learning_rate)
    return RowStep(tf.convert_to_tensor(optimizer.iterations) + 1, rate, 1.0 / global_count)


def tensors_of(batch: Batch) -> tuple:
    """Return the fields of a batch in the order in which the training function takes them."""
    return (
        batch.ids,
        batch.mask,
        batch.candidates,
        batch.splits,
        batch.targets,
        batch.weights,
        np.float32(batch.global_count),
    )
