"""The metrics of a Keras model over the batches of all ranks."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import keras
import numpy as np

from xmc_tf.ranks.communicator import Communicator

log = logging.getLogger(__name__)


@contextmanager
def metrics_of_all_ranks(model: keras.Model, communicator: Communicator) -> Iterator[None]:
    """Give the metrics of a model the states over all ranks in the block; collective.

    Sums, counts and histograms add up, so that a smaller batch has its proper weight. A variable that a metric creates
    with another ``aggregation`` than Keras' default, "sum", is averaged ("mean") or stays as it is.
    """
    variables = [variable for metric in model.metrics for variable in metric.variables]
    kinds = [getattr(variable, "aggregation", "sum") for variable in variables]
    own = [np.asarray(variable.numpy()) for variable in variables]
    totals = communicator.allreduce_array(np.concatenate([np.zeros(0), *(one.reshape(-1) for one in own)]))
    at = 0
    for variable, kind, one in zip(variables, kinds, own, strict=True):
        total = totals[at : at + one.size].reshape(one.shape)
        at += one.size
        if kind in ("sum", "mean"):
            variable.assign((total if kind == "sum" else total / communicator.size).astype(one.dtype))
    try:
        yield
    finally:
        for variable, one in zip(variables, own, strict=True):
            variable.assign(one)


def announce_own_metrics(model: keras.Model) -> None:
    """Warn that the states of metrics that are not from Keras are added up."""
    for metric in dict.fromkeys(_flat(model)):
        if not type(metric).__module__.startswith(("keras.", "keras_rs.")):
            log.warning(
                "metric %r: its variables are added up over the ranks, as sums and counts must be; for others, use "
                'add_variable(..., aggregation="mean") or "only_first_replica"',
                metric.name,
            )


def _flat(model: keras.Model) -> list[keras.metrics.Metric]:
    """Return the metrics that the user has passed to ``compile``, or that layers and models own."""
    compiled = model._compile_metrics
    passed = [] if compiled is None else [compiled._user_metrics, compiled._user_weighted_metrics]
    return [one for one in keras.tree.flatten([passed, model.metrics]) if isinstance(one, keras.metrics.Metric)]
