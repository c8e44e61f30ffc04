"""The linear model beside an encoder's: what the encoder brings on the same test documents, and what it costs."""

import dataclasses
import math
import time

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.jobs.linear import DataSetFeatures, LinearTraining, lines_to_learn, shape_of
from xmc_tf.jobs.settings import choose_settings, seconds_of_training
from xmc_tf.metrics import format_table, percent
from xmc_tf.metrics.ranking import as_truth, mark_hits, top_labels
from xmc_tf.models.linear.executors import InMemory
from xmc_tf.models.linear.training import LinearOptions
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.summary import Summary

_KS = (1, 3, 5)
_SOON = 60.0  # seconds that a comparison may always take
_SURE = 2  # standard errors of a difference that is more than chance


def compare_with_linear(
    store: TableStore, about: Summary, predicted: csr_matrix, seconds: float, threads: int = -1
) -> list[str]:
    """Train a linear model on the documents of the table; return a table of both models, and a sentence.

    Args:
        predicted: the labels of the test documents by the model with the encoder, whose training took ``seconds``.
    """
    shape, options = shape_of(store, about), LinearOptions(threads=threads)
    expected = seconds_of_training(shape, "balanced")
    if expected > max(seconds, _SOON):
        minutes = f"{expected / 60:,.0f} minutes"
        return [f"not compared with a linear model, which takes about {minutes}: train one without --model-shortcut"]
    began = time.monotonic()
    features = DataSetFeatures(store, threads, lines_to_learn(store, options))
    training = LinearTraining(features, options, about.single_label, {})
    settings = dataclasses.replace(choose_settings(shape, options.params), steps=())  # nothing else is tried
    linear = training.fit(training.choose(settings), InMemory(threads)).predict(store.texts("test"), threads=threads)
    return _lines(store.labels("test"), predicted, linear, seconds, time.monotonic() - began, about.single_label)


def _lines(
    truth: csr_matrix, encoder: csr_matrix, linear: csr_matrix, seconds: float, seconds_of_linear: float, single: bool
) -> list[str]:
    ks = [k for k in _KS[: 1 if single else None] if k <= truth.shape[1]]
    true = as_truth(truth)
    # float64 [documents, ks]: the precision of each document
    one, other = (
        np.column_stack([hits[:, :k].mean(axis=1) for k in ks])
        for hits in (mark_hits(true, top_labels(labels, ks[-1])) for labels in (encoder, linear))
    )
    rows = [
        [name, *map(percent, precision.mean(axis=0)), f"{took:,.0f}"]
        for name, precision, took in (("with the encoder", one, seconds), ("linear", other, seconds_of_linear))
    ]
    what = "P@1" if len(ks) == 1 else f"the mean of {', '.join(f'P@{k}' for k in ks[:-1])} and P@{ks[-1]}"
    verdict = _verdict((one - other).mean(axis=1), what)
    return [*format_table(["%", *(f"P@{k}" for k in ks), "seconds"], rows, indent="  ").splitlines(), verdict]


def _verdict(gains: np.ndarray, what: str) -> str:
    """Return a sentence on the gain of each test document."""
    gain, noise = float(gains.mean()), _SURE * float(np.std(gains)) / math.sqrt(len(gains))
    if gain > noise:
        return f"the encoder improves {what} by {100 * gain:.1f} points"
    if gain < -noise:
        return f"the encoder lowers {what} by {-100 * gain:.1f} points: train without --model-shortcut"
    return (
        f"the encoder changes {what} by {100 * gain:+.1f} points, which is within the noise of {len(gains):,} test "
        "documents: a linear model, trained without --model-shortcut, is smaller and faster"
    )
