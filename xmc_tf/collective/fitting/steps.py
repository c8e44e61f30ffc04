"""Steps of Keras models over all ranks: number of steps, weight of each rank, losses, metrics, and normalization."""

import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import trainer
from keras.src.losses import loss as keras_loss

from xmc_tf.collective.blocks import replaced
from xmc_tf.collective.engines.operations import gather_rows
from xmc_tf.collective.optimizers.gradients import BatchShare, current_batch, step_over
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator

log = logging.getLogger(__name__)


def take_steps_over_ranks(model: keras.Model, communicator: Communicator) -> None:
    """Make a model's steps give each example of all ranks the same weight, and normalize batches over all ranks."""
    for name in ("train_step", "test_step"):
        # The method of the class, because a model may be compiled twice.
        step = functools.partial(getattr(type(model), name), model)
        setattr(model, name, functools.partial(_step, step, communicator.size))
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            _normalize_over_ranks(layer, communicator)


@tf.autograph.experimental.do_not_convert
def _step(step: Callable[[Any], Any], size: int, data: Any) -> Any:
    inputs = keras.utils.unpack_x_y_sample_weight(data)[0]
    first = next(one for one in tf.nest.flatten(inputs) if one is not None)
    if isinstance(first, tf.RaggedTensor):
        examples = first.nrows()
    else:
        examples = first.dense_shape[0] if isinstance(first, tf.SparseTensor) else tf.shape(first)[0]
    with step_over(BatchShare(examples, size)):
        return step(data)


def reduce_losses_over_ranks() -> None:
    """Make the sums and the masked or weighted means of Keras' losses cover the batches of all ranks in a step."""
    original = keras_loss.reduce_weighted_values

    @functools.wraps(original)
    def reduced(
        values: Any,
        sample_weight: Any = None,
        mask: Any = None,
        reduction: str = "sum_over_batch_size",
        dtype: Any = None,
    ) -> Any:
        loss = original(values, sample_weight=sample_weight, mask=mask, reduction=reduction, dtype=dtype)
        batch = current_batch()
        if batch is None or reduction in (None, "none") or tuple(values.shape) == ():
            return loss
        if tuple(values.shape) == (0,):
            loss = tf.reduce_sum(loss)  # of an empty batch, Keras returns the values as they are
        if reduction == "sum":
            weight = batch.size
        elif reduction == "mean_with_sample_weight" and sample_weight is not None:
            weights = keras_loss.apply_mask(tf.cast(sample_weight, loss.dtype), mask, loss.dtype, reduction)
            weight = batch.weight_by(tf.reduce_sum(weights), "weights")
        elif mask is not None:
            weight = batch.weight_by(tf.reduce_sum(tf.cast(mask, tf.float32)), "mask")
        else:
            return loss
        # The optimizer weights the whole loss, and Keras its mean over steps, by the number of examples.
        return loss * tf.cast(tf.math.divide_no_nan(tf.cast(weight, tf.float32), batch.weight), loss.dtype)

    keras_loss.reduce_weighted_values = reduced


@contextmanager
def normalized_over_ranks(communicator: Communicator) -> Iterator[None]:
    """Make BatchNormalization layers that are created in the block use the batches of all ranks."""
    if communicator.size == 1:
        yield
        return
    original = keras.layers.BatchNormalization.__new__

    def new(cls: type, *args: Any, **kwargs: Any) -> keras.layers.BatchNormalization:
        layer = original(cls, *args, **kwargs)
        _normalize_over_ranks(layer, communicator)
        return layer

    with replaced(keras.layers.BatchNormalization, __new__=new):
        yield


def _normalize_over_ranks(layer: keras.layers.BatchNormalization, communicator: Communicator) -> None:
    # Keras' own method to set attributes needs a layer that is complete.
    object.__setattr__(layer, "_moments", functools.partial(_moments, layer, communicator))


@tf.autograph.experimental.do_not_convert
def _moments(
    layer: keras.layers.BatchNormalization, communicator: Communicator, inputs: tf.Tensor, mask: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the mean and variance of each channel over the unmasked elements of all ranks."""
    axes = layer._reduction_axes
    weights = tf.ones_like(inputs)
    if mask is not None:
        weights = tf.broadcast_to(tf.cast(mask, inputs.dtype)[..., None], tf.shape(inputs))
        inputs = tf.where(weights > 0, inputs, 0.0)
    count = tf.reduce_sum(weights, axes)
    mean = tf.math.divide_no_nan(tf.reduce_sum(inputs, axes), count)
    centered = (
        inputs - tf.reshape(mean, [-1 if axis not in axes else 1 for axis in range(inputs.shape.rank)])
    ) * weights
    own = tf.stack([count, mean, tf.reduce_sum(tf.square(centered), axes)])[None]
    of_ranks = gather_rows(own, communicator.size, communicator.rank, "xmc_tf/batch/moments").rows
    counts, means, squares = tf.unstack(of_ranks, axis=1, num=3)
    total = tf.reduce_sum(counts, axis=0)
    mean = tf.math.divide_no_nan(tf.reduce_sum(counts * means, axis=0), total)
    # The squares of each rank are about its own mean, which keeps all digits.
    squares += counts * tf.square(means - mean)
    return mean, tf.math.divide_no_nan(tf.reduce_sum(squares, axis=0), total)


def same_steps_on_all_ranks(communicator: Communicator) -> AbstractContextManager[None]:
    """Make ``fit``, ``evaluate`` and ``predict`` in the block end each epoch at the same step on all ranks."""
    return replaced(trainer, TFEpochIterator=functools.partial(_EpochOfRanks, communicator))


class _EpochOfRanks(trainer.TFEpochIterator):
    def __init__(self, communicator: Communicator, **options: Any) -> None:
        super().__init__(**options)
        self._communicator = communicator
        self._current_iterator: Iterator[Any] | None = None

    def _enumerate_iterator(self) -> Iterator[tuple[int, int, Any]]:
        dataset, unknown = self._distributed_dataset, tf.data.UNKNOWN_CARDINALITY
        number = int(dataset.cardinality()) if isinstance(dataset, tf.data.Dataset) else unknown
        own = (self.data_adapter.num_batches or number, self.steps_per_epoch or 0)
        each = self._communicator.allgather(own)
        if own[0] != unknown and all(one == own for one in each):
            yield from super()._enumerate_iterator()
            return
        self.data_adapter.on_epoch_begin()
        iterator = self._current_iterator
        if iterator is None or not self.steps_per_epoch:
            iterator = self._current_iterator = batches_in_step(iter(self._get_iterator()), self._communicator)
        steps = range(0, self.steps_per_epoch, self.steps_per_execution) if self.steps_per_epoch else itertools.count()
        for step in steps:
            batches = list(itertools.islice(iterator, self.steps_per_execution))
            if not batches:
                if self.steps_per_epoch:
                    self._interrupted_warning()
                self._current_iterator = None
                break
            begin = step if self.steps_per_epoch else step * self.steps_per_execution
            yield begin, begin + len(batches) - 1, iter(batches)
        self.data_adapter.on_epoch_end()


def batches_in_step(batches: Iterator[Any], communicator: Communicator) -> Iterator[Any]:
    """Yield this rank's batches, then empty ones until all ranks are finished. All ranks must iterate over it."""
    last = None
    while True:
        batch = next(batches, None)
        last = last if batch is None else batch
        ranks = communicator.allgather((batch is not None, last is not None))
        if without := [rank for rank, (_, had_one) in enumerate(ranks) if not had_one]:
            raise InputError(
                f"ranks {without} have no batch",
                expected="a batch for every rank",
                fix="use smaller batches or fewer ranks",
            )
        if not any(has_one for has_one, _ in ranks):
            return
        # An empty batch looks nothing up, but the step serves the lookups of other ranks.
        yield batch if batch is not None else tf.nest.map_structure(_without_examples, last)


def _without_examples(part: Any) -> Any:
    if isinstance(part, tf.SparseTensor):
        return tf.sparse.slice(part, tf.zeros_like(part.dense_shape), tf.concat([[0], part.dense_shape[1:]], axis=0))
    return part[:0] if isinstance(part, tf.Tensor | tf.RaggedTensor) else part


@contextmanager
def metrics_of_all_ranks(model: keras.Model, communicator: Communicator) -> Iterator[None]:
    """In the block, combine metrics over the ranks by each variable's ``aggregation``. All ranks must enter it."""
    variables = [variable for metric in model.metrics for variable in metric.variables]
    kinds = [getattr(variable, "aggregation", "sum") for variable in variables]
    own = [np.asarray(variable.numpy()) for variable in variables]
    # Summed with zeros from the other ranks, a variable has the value of rank 0.
    silent = [kind == "only_first_replica" and communicator.rank > 0 for kind in kinds]
    sent = [np.zeros(one.size) if is_silent else one.reshape(-1) for one, is_silent in zip(own, silent, strict=True)]
    totals = communicator.allreduce_array(np.concatenate([np.zeros(0), *sent]))
    at = 0
    for variable, kind, one in zip(variables, kinds, own, strict=True):
        total = totals[at : at + one.size].reshape(one.shape)
        at += one.size
        if kind in ("sum", "mean", "only_first_replica"):
            variable.assign((total / communicator.size if kind == "mean" else total).astype(one.dtype))
    try:
        yield
    finally:
        for variable, one in zip(variables, own, strict=True):
            variable.assign(one)


def announce_own_metrics(model: keras.Model) -> None:
    """Warn about metrics that are not part of Keras: by default, their variables are summed over the ranks."""
    compiled = model._compile_metrics  # those that the user has passed to ``compile``
    passed = [] if compiled is None else [compiled._user_metrics, compiled._user_weighted_metrics]
    for metric in dict.fromkeys(keras.tree.flatten([passed, model.metrics])):
        is_metric = isinstance(metric, keras.metrics.Metric)
        if is_metric and not type(metric).__module__.startswith(("keras.", "keras_rs.")):
            log.warning(
                "metric %r: its variables are added up over the ranks, as sums and counts must be; for other "
                'variables, use add_variable(..., aggregation="mean") or "only_first_replica"',
                metric.name,
            )
