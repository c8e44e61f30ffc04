"""Learning in the background from what is labelled, and choosing the texts that teach most."""

import logging
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, lil_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.fusion.thresholds import measure_curve
from xmc_tf.models.model import Model
from xmc_tf.models.results import named
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.server.labelling.store import LabelStore
from xmc_tf.server.labelling.suggesting import Suggester
from xmc_tf.server.labelling.training import train_aside
from xmc_tf.store.models import NO_PROBABILITIES

_LOG = logging.getLogger(__name__)
EVERY, _GROWTH = 10, 0.2  # labelled documents between two updates: at least so many, and this part of those before
_ALIKE = 200  # labelled documents with which a model of documents is worth as much as one of names
_CANDIDATES = 1000  # texts of which the most instructive ones are chosen
_RECALLED = 5  # labels per text
_PRECISION = 0.9  # that is promised


class Learner:
    """Updates the suggestions in a thread, while people go on labelling.

    Args:
        model: the model to begin with, which is not changed.
        store: the texts and answers.
        lines: the names of labels, if the model was made of them alone. A new model is then trained for each update;
            otherwise the documents are appended to ``model``.
        learns: whether anything is learned.
    """

    def __init__(self, model: Model, store: LabelStore, lines: Sequence[str] = (), *, learns: bool = True) -> None:
        self._first, self._store, self._lines = model, store, lines
        self._names = model.names or list(map(str, range(model.nr_labels)))
        self._numbers = {name: number for number, name in reversed([*enumerate(self._names)])}
        self.suggester = Suggester((model, 1.0))
        self.order: list[int] = []  # texts, the most instructive ones first
        self.figures: dict[str, Any] = {}
        self.learned = 0  # labelled documents that the model knows
        self._seen = -1  # those of the latest update
        self._ended, self._updating = False, threading.Lock()
        self._begin, self._thread = threading.Event(), threading.Thread(target=self._run)
        self._active = learns
        self._learns = learns and isinstance(model, XRLinear) and model.training_data is not None
        if learns and not self._learns:
            _LOG.warning("the model does not learn from the answers: it is no linear model that kept its training data")

    def __enter__(self) -> "Learner":
        self.notice()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = True
        self._begin.set()
        self._thread.join()

    def notice(self) -> None:
        """Update the model if there are enough new documents."""
        self._begin.set()

    def _run(self) -> None:
        while not self._ended:
            self._begin.wait()
            self._begin.clear()
            try:
                self.update()
            except Exception:  # noqa: BLE001 - people go on labelling with the model that there is
                _LOG.exception("the model could not learn from the answers")

    def update(self) -> None:
        """Learn from the labelled documents that are not held out, if there are enough new ones."""
        with self._updating:
            self._update()

    def _update(self) -> None:
        if self._ended or not self._active:
            return
        labelled = self._store.labelled(held_out=False)
        enough = max(EVERY, _GROWTH * self._seen if self._lines else 0)
        if self._seen >= 0 and abs(len(labelled) - self._seen) < enough:
            return
        self._seen = len(labelled)  # if the training fails, the next one has more documents
        if self._learns and len(labelled) >= (EVERY if self._lines else 1):
            self._learn([text for _, text, _ in labelled], [labels for *_, labels in labelled])
        self.figures = measured(self.suggester, self._names, self._store.labelled(held_out=True))
        self.order = self._instructive([text for _, text, _ in labelled])

    def _learn(self, texts: list[str], labels: list[list[str]]) -> None:
        assert isinstance(self._first, XRLinear)
        Y = lil_matrix((len(texts), len(self._names)), dtype=np.float32)
        for row, own in enumerate(labels):
            Y[row, [self._numbers[name] for name in own if name in self._numbers]] = 1
        if not self._lines:
            self.suggester = Suggester((self._first.with_documents(texts, csr_matrix(Y), threads=1), 1.0))
        elif model := train_aside(self._lines, texts, csr_matrix(Y), self._first.tfidf, lambda: self._ended):
            share = len(texts) / (len(texts) + _ALIKE)
            self.suggester = Suggester((self._first, 1 - share), (model, share))
        else:
            return
        self.learned = len(texts)

    def _instructive(self, labelled: list[str]) -> list[int]:
        """Return texts in the order of uncertainty × similarity to all texts × difference from the labelled ones."""
        numbers = self._store.untouched(held_out=False, most=_CANDIDATES)
        stored = [self._store.text(number) for number in numbers]
        texts = [one.text for one in stored if one is not None]
        if not texts or not isinstance(self._first, XRLinear):
            return numbers
        return [numbers[at] for at in np.argsort(-worth(self.suggester, self._first, texts, labelled), kind="stable")]


def worth(suggester: Suggester, model: XRLinear, texts: list[str], labelled: list[str]) -> np.ndarray:
    """Return how much each text teaches, from 0 to 1. The model's features say which texts are similar."""
    best = suggester.predict(texts, 2)
    ratio = np.ones(len(texts))  # of the second score to the first: 1 if the model cannot decide
    for row, (a, b) in enumerate(zip(best.indptr[:-1], best.indptr[1:], strict=True)):
        scores = best.data[a:b]
        if len(scores) == 2 and scores[0] > 0:
            ratio[row] = scores[1] / scores[0]
    X, known = (_normalized(model, some) for some in (texts, labelled))
    usual = np.asarray(X @ X.mean(axis=0).T).ravel()
    nearest = np.asarray((X @ known.T).max(axis=1).todense()).ravel() if labelled else np.zeros(len(texts))
    return np.asarray(ratio * usual / max(usual.max(), 1e-9) * (1 - np.clip(nearest, 0, 1)))


def _normalized(model: XRLinear, texts: list[str]) -> csr_matrix:
    X = csr_matrix(model.features(texts, threads=1, quiet=True).sparse)
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    return csr_matrix(X.multiply(1 / np.maximum(norms, 1e-9)[:, None]))


def measured(
    suggester: Suggester, names: Sequence[str], held_out: Sequence[tuple[str, str, list[str]]]
) -> dict[str, Any]:
    """Return what the suggestions are good for, on texts that were never learned from, with standard errors."""
    if not held_out:
        return {}
    truth = [set(own) for *_, own in held_out]
    best = list(named(suggester.predict([text for _, text, _ in held_out], _RECALLED), names))
    right = np.array([bool(found) and found[0][0] in own for found, own in zip(best, truth, strict=True)])
    recall = np.array(
        [len(own & {name for name, _ in found}) / len(own) for found, own in zip(best, truth, strict=True)]
    )
    count = len(truth)
    out: dict[str, Any] = {"documents": count}
    for name, values in (("precision", right), ("recall", recall)):
        # With one success and one failure more: twelve hits of twelve do not mean that nothing can go wrong.
        error = float(np.std([*values, 0.0, 1.0], ddof=1) / math.sqrt(count + 2))
        out |= {name: float(np.mean(values)), f"{name}_error": error}
    model = suggester.parts[-1][0]
    if model.evidence is not None and NO_PROBABILITIES not in model.metadata.content:
        scores = np.array([found[0][1] if found else 0.0 for found in best])
        curve = measure_curve(scores, right, np.arange(count), count)
        try:
            out["promise"] = {"precision": _PRECISION, "share": curve.for_precision(_PRECISION).labels / count}
        except InputError:  # there is none yet
            out["promise"] = None
    return out
