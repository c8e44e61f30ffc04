"""Steps of Keras models over all ranks: their number, the weight of each rank, and normalization."""

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer

from xmc_tf.collective.batches import BatchShare, step_over
from xmc_tf.collective.blocks import patched
from xmc_tf.collective.engines.operations import gather_rows
from xmc_tf.collective.fitting.empty_batches import empty_batches_allowed
from xmc_tf.collective.fitting.losses import gradients_noted, warn_unless_mean
from xmc_tf.collective.fitting.metrics import ResultsInLogs, finite_if_empty
from xmc_tf.collective.fitting.states import StatesOverRanks
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator


def take_steps_over_ranks(model: keras.Model, communicator: Communicator) -> None:
    """Make a model's steps give each example of all ranks the same weight, and normalize batches over all ranks."""
    share = functools.partial(BatchShare, size=communicator.size, told=set())  # another model warns again
    for name in ("train_step", "test_step"):
        # The method of the class, because a model may be compiled twice.
        step = functools.partial(getattr(type(model), name), model)
        setattr(model, name, functools.partial(_step, model, step, StatesOverRanks(model), share))
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            _normalize_over_ranks(layer, communicator)


@tf.autograph.experimental.do_not_convert
def _step(model: keras.Model, step: Callable[[Any], Any], states: StatesOverRanks, share: Any, data: Any) -> Any:
    batch, results = share(_examples(data)), ResultsInLogs(model)
    if any(getattr(type(model), name) is not getattr(keras.Model, name) for name in ("train_step", "compute_loss")):
        batch.check_loss = functools.partial(warn_unless_mean, model, batch)
    with step_over(batch), finite_if_empty(model, batch), gradients_noted(batch):
        with states.averaged(batch), results.noted():
            logs = step(data)
        return results.over_ranks(logs, batch)


def _examples(data: Any) -> tf.Tensor:
    """Return the number of examples of a batch."""
    inputs = keras.utils.unpack_x_y_sample_weight(data)[0]
    first = next(one for one in tf.nest.flatten(inputs) if one is not None)
    if isinstance(first, tf.RaggedTensor):
        return first.nrows()
    if isinstance(first, tf.SparseTensor):
        return first.dense_shape[0]
    return tf.shape(first)[0] if first.shape[0] is None else tf.constant(first.shape[0])


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

    with patched(keras.layers.BatchNormalization, __new__=new):
        yield


def _normalize_over_ranks(layer: keras.layers.BatchNormalization, communicator: Communicator) -> None:
    # Keras' own method to set attributes needs a layer that is complete.
    object.__setattr__(layer, "_moments", functools.partial(_moments, layer, communicator))


@tf.autograph.experimental.do_not_convert
def _moments(
    layer: keras.layers.BatchNormalization, communicator: Communicator, inputs: tf.Tensor, mask: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the mean and variance of each channel over the unmasked elements of all ranks."""
    axes = [axis for axis in range(inputs.shape.rank) if axis != layer.axis % inputs.shape.rank]
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


@contextmanager
def same_steps_on_all_ranks(communicator: Communicator | None) -> Iterator[None]:
    """Make ``fit``, ``evaluate`` and ``predict`` in the block end each epoch at the same step on all ranks, if any."""
    if communicator is None or isinstance(trainer.TFEpochIterator, functools.partial):  # in such a block already
        yield
        return
    epochs = functools.partial(_EpochOfRanks, communicator)
    with patched(trainer, TFEpochIterator=epochs), empty_batches_allowed():
        yield


class _EpochOfRanks(trainer.TFEpochIterator):
    def __init__(self, communicator: Communicator, distribute_strategy: Any = None, **options: Any) -> None:
        self._communicator = communicator
        self._batches_of_ranks: Iterator[Any] | None = None
        super().__init__(distribute_strategy=self, **options)

    def experimental_distribute_dataset(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        self._dataset = dataset  # Keras passes it to the strategy that it is given
        return dataset

    def reset(self) -> None:
        super().reset()
        self._batches_of_ranks = None

    def __iter__(self) -> Iterator[tuple[int, int, Any]]:
        own = (self.data_adapter.num_batches or int(self._dataset.cardinality()), self.steps_per_epoch or 0)
        each = self._communicator.allgather(own)
        if own[0] not in (0, tf.data.UNKNOWN_CARDINALITY) and all(one == own for one in each):
            yield from iter(super().__iter__().__next__, None)
            return
        self.data_adapter.on_epoch_begin()
        iterator = self._batches_of_ranks
        if iterator is None or not self.steps_per_epoch:
            iterator = self._batches_of_ranks = batches_in_step(iter(self._dataset), self._communicator)
        steps = range(0, self.steps_per_epoch, self.steps_per_execution) if self.steps_per_epoch else itertools.count()
        for step in steps:
            batches = list(itertools.islice(iterator, self.steps_per_execution))
            if not batches:
                self._batches_of_ranks = None
                if self.steps_per_epoch:
                    with self.catch_stop_iteration():  # warns that the data have ended
                        next(iterator)
                    return
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
