"""The linear model beside an encoder's: what the encoder brings on the same test documents, and what it costs."""

import dataclasses
import math
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.process.leftovers import TemporaryFolder
from xmc_tf.data import Texts
from xmc_tf.jobs.linear import DataSetFeatures, LinearTraining, lines_to_learn, shape_of
from xmc_tf.jobs.settings import choose_settings, seconds_of_training
from xmc_tf.metrics import format_table, percent
from xmc_tf.metrics.ranking import as_truth, mark_hits, top_labels
from xmc_tf.models.linear.executors import InMemory
from xmc_tf.models.linear.training import LinearOptions
from xmc_tf.models.model import Model
from xmc_tf.plan.formulas import size
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.summary import Summary

_KS = (1, 3, 5)
_SOON = 60.0  # seconds that a comparison may always take
_SURE = 2  # standard errors of a difference that is more than chance
_ANSWERED = 20  # texts that are answered one at a time


class Side(NamedTuple):
    """One of two models: its labels of the test documents, and what it costs."""

    name: str
    labels: csr_matrix
    seconds: float  # of the training
    milliseconds: float  # of an answer to one text
    space: float  # bytes of the model folder

    @classmethod
    def of(cls, name: str, model: Model, folder: Path, labels: csr_matrix, seconds: float, store: TableStore) -> "Side":
        some, times = store.texts("test")[:_ANSWERED], []
        for text in [some[0], *some]:  # the first answer loads what others need, and is not counted
            began = time.perf_counter()
            model.predict([text], only_topk=_KS[-1])
            times.append(time.perf_counter() - began)
        space = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        return cls(name, labels, seconds, 1000 * median(times[1:]), space)

    @property
    def costs(self) -> tuple[str, str, str]:
        return f"{self.seconds:,.0f}", f"{self.milliseconds:,.1f}", size(self.space)


def compare_with_linear(
    store: TableStore, about: Summary, model: Model, folder: Path, predicted: csr_matrix, seconds: float,
    threads: int = -1, unlabelled: Texts = (),
) -> list[str]:  # fmt: skip
    """Train a linear model on the documents of the table; return a table of both models, and a sentence.

    Args:
        predicted: the labels of the test documents by the model with the encoder in ``folder``, whose training took
            ``seconds``.
    """
    shape, options = shape_of(store, about), LinearOptions(threads=threads)
    expected = seconds_of_training(shape, "balanced")
    if expected > max(seconds, _SOON):
        minutes = f"{expected / 60:,.0f} minutes"
        return [f"not compared with a linear model, which takes about {minutes}: train one without --model-shortcut"]
    began = time.monotonic()
    features = DataSetFeatures(store, threads, lines_to_learn(store, options), unlabelled)
    training = LinearTraining(features, options, about.single_label, {})
    settings = dataclasses.replace(choose_settings(shape, options.params), steps=())  # nothing else is tried
    linear = training.fit(training.choose(settings), InMemory(threads))
    took, texts = time.monotonic() - began, store.texts("test")
    with TemporaryFolder() as place:
        linear.save(Path(place) / "linear")
        sides = (
            Side.of("with the encoder", model, folder, predicted, seconds, store),
            Side.of("linear", linear, Path(place), linear.predict(texts, threads=threads), took, store),
        )
    return _lines(store.labels("test"), *sides, single=about.single_label)


def _lines(truth: csr_matrix, encoder: Side, linear: Side, *, single: bool) -> list[str]:
    ks = [k for k in _KS[: 1 if single else None] if k <= truth.shape[1]]
    true = as_truth(truth)
    # float64 [documents, ks]: the precision of each document
    one, other = (
        np.column_stack([hits[:, :k].mean(axis=1) for k in ks])
        for hits in (mark_hits(true, top_labels(labels, ks[-1])) for labels in (encoder.labels, linear.labels))
    )
    rows = [
        [side.name, *map(percent, precision.mean(axis=0)), *side.costs]
        for side, precision in ((encoder, one), (linear, other))
    ]
    what = "P@1" if len(ks) == 1 else f"the mean of {', '.join(f'P@{k}' for k in ks[:-1])} and P@{ks[-1]}"
    verdict = _verdict((one - other).mean(axis=1), what)
    header = ["%", *(f"P@{k}" for k in ks), "training s", "answer ms", "model"]
    return [*format_table(header, rows, indent="  ").splitlines(), verdict]


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
