"""Metrics over all ranks: their results at the end of an epoch, and the values that a ``train_step`` returns."""

import functools
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.batches import BatchShare
from xmc_tf.collective.blocks import patched
from xmc_tf.ranks.communicator import Communicator

log = logging.getLogger(__name__)
_SOURCES = "_xmc_tf_sources_of_logs"


class ResultsInLogs:
    """The results of a model's metrics in a step, by which the values that the step returns are recognized."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._found: list[tuple[Any, keras.Metric, str | None]] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for metric in self._model.metrics:
                stack.enter_context(patched(metric, result=functools.partial(self._result, metric, metric.result)))
            yield

    def over_ranks(self, logs: Any, batch: BatchShare) -> Any:
        """Return what a step returns, with means over all examples in place of numbers that are no metric's result."""
        if not isinstance(logs, dict):
            return logs
        sources = {name: source for name, value in logs.items() if (source := self._source(value)) is not None}
        object.__setattr__(self._model, _SOURCES, getattr(self._model, _SOURCES, {}) | sources)
        own = {name: value for name, value in logs.items() if name not in sources and _is_number(value)}
        parts = [batch.part_of_mean(value) for value in own.values()]
        means = [total / batch.size for total in batch.sum(parts, "values")] if parts else []
        return {**logs, **dict(zip(own, means, strict=True))}

    def _result(self, metric: keras.Metric, result: Any) -> Any:
        found = result()
        parts = found if isinstance(found, dict) else {None: found}
        self._found += [(value, metric, name) for name, value in parts.items()]
        return found

    def _source(self, value: Any) -> tuple[keras.Metric, str | None] | None:
        return next(((metric, name) for found, metric, name in self._found if found is value), None)


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, tf.Tensor) and value.shape.rank == 0 and (value.dtype.is_floating or value.dtype.is_integer)
    )


def results_in(logs: dict[str, Any], model: keras.Model) -> dict[str, Any]:
    """Return the present results of the metrics whose results a step of the model has returned in its logs."""
    sources = getattr(model, _SOURCES, {})
    results = {name: (sources[name][0].result(), sources[name][1]) for name in logs if name in sources}
    return {name: result if key is None else result[key] for name, (result, key) in results.items()}


@contextmanager
def finite_if_empty(model: keras.Model, batch: BatchShare) -> Iterator[None]:
    """Leave the states of metrics as they are where an empty batch, whose means are NaN, would make them NaN."""
    metrics = model.metrics if batch.number in (None, 0) else []
    variables = [one for metric in metrics for one in metric.variables if one.value.dtype.is_floating]
    before = [tf.identity(one.value) for one in variables]
    yield
    for variable, one in zip(variables, before, strict=True):
        variable.assign(tf.where(batch.is_empty & tf.math.is_nan(variable.value), one, variable.value))


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


def announce_own_metrics(metrics: Any) -> None:
    """Warn about metrics that are not part of Keras: by default, their variables are summed over the ranks."""
    for metric in dict.fromkeys(keras.tree.flatten(metrics)):
        is_metric = isinstance(metric, keras.metrics.Metric)
        if is_metric and not type(metric).__module__.startswith(("keras.", "keras_rs.")):
            log.warning(
                "metric %r: its variables are added up over the ranks, as sums and counts must be; for other "
                'variables, use add_variable(..., aggregation="mean") or "only_first_replica"',
                metric.name,
            )
