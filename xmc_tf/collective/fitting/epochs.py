"""Epochs in which all ranks make the same number of steps, for any number of batches on each.

A rank without further batches takes part in the steps of the others with empty ones.
"""

import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import trainer

from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator


@contextmanager
def same_steps_on_all_ranks(communicator: Communicator) -> Iterator[None]:
    """Make the epochs of ``fit``, ``evaluate`` and ``predict`` in the block end on all ranks at the same step."""
    original = trainer.TFEpochIterator
    trainer.TFEpochIterator = functools.partial(_EpochOfRanks, communicator)
    try:
        yield
    finally:
        trainer.TFEpochIterator = original


class _EpochOfRanks(trainer.TFEpochIterator):
    """The batches of an epoch, as Keras iterates over them."""

    def __init__(self, communicator: Communicator, **options: Any) -> None:
        super().__init__(**options)
        self._communicator = communicator
        self._current_iterator: Iterator[Any] | None = None

    def _enumerate_iterator(self) -> Iterator[tuple[int, int, Any]]:
        own = (self.data_adapter.num_batches or self._cardinality(), self.steps_per_epoch or 0)
        each = self._communicator.allgather(own)
        if own[0] != tf.data.UNKNOWN_CARDINALITY and all(one == own for one in each):
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

    def _cardinality(self) -> int:
        dataset = self._distributed_dataset
        return int(dataset.cardinality()) if isinstance(dataset, tf.data.Dataset) else tf.data.UNKNOWN_CARDINALITY


def batches_in_step(batches: Iterator[Any], communicator: Communicator) -> Iterator[Any]:
    """Yield the batches, and then empty ones as long as another rank has more; collective."""
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
