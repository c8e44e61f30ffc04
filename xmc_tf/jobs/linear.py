"""Train linear rankers on a data set: compare settings on validation documents, then train on all documents."""

import dataclasses
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix, vstack

from xmc_tf.data import Features, JoinedTexts, as_features
from xmc_tf.jobs.settings import COMPARED_TREES, Settings
from xmc_tf.label_names import NameDocuments, have_letters
from xmc_tf.metrics import evaluate
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.linear.in_memory import InMemory, fit_tfidf
from xmc_tf.models.linear.training import LinearData, LinearRecipe, train_linear
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import PredictionOptions, TfidfParams, XRLinearParams
from xmc_tf.tables.store import TableStore

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf


class DataSetFeatures:
    """TF-IDF features of the training documents, validation documents and label names, and of the test documents.

    Words are counted in training and validation documents, without their labels, so that settings can be compared on
    validation documents and the final training needs no other features. Each choice of options is computed once.
    """

    def __init__(self, store: TableStore, threads: int = -1, lines: Sequence[str] | None = None) -> None:
        self.store, self.threads = store, threads
        self.names = None if lines is None or store.nr_features else NameDocuments.of(lines)
        self._known: dict[str, tuple[Tfidf, csr_matrix]] = {}

    @property
    def texts(self) -> JoinedTexts | None:
        """The texts of training and then validation documents; None if the table has features."""
        if self.store.nr_features:
            return None
        return JoinedTexts([self.store.texts("train"), self.store.texts("validation")])

    def of(self, params: TfidfParams) -> "tuple[Tfidf | None, csr_matrix]":
        """Return the vectorizer, and the features of training documents, validation documents, and label names."""
        texts = self.texts
        if texts is None:
            return None, self._of_table
        if self.names is not None:
            texts = JoinedTexts([*texts.sources, self.names.texts])
        key = json.dumps(params.to_json(), sort_keys=True)
        if key not in self._known:
            tfidf, features = fit_tfidf(texts, params, self.threads)
            assert features.sparse is not None
            # Also by the parameters that contain the language that was found.
            found = json.dumps(tfidf.params.to_json(), sort_keys=True)
            self._known[key] = self._known[found] = tfidf, features.sparse
        return self._known[key]

    def of_test(self, params: TfidfParams) -> csr_matrix:
        tfidf = self.of(params)[0]
        if tfidf is None:
            return self.store.features("test")
        return tfidf.transform(self.store.texts("test"), threads=self.threads)

    @cached_property
    def _of_table(self) -> csr_matrix:
        return vstack([self.store.features(split) for split in ("train", "validation")], format="csr")


_LOG = logging.getLogger(__name__)
_KS = (1, 3, 5)
_LEAST_GAIN = 0.001  # smaller differences are chance, and the simpler settings stay
_SMALL = 20_000_000  # bytes of training data that a model keeps by default


@dataclass(frozen=True)
class Trial:
    """A setting that was compared on validation documents."""

    name: str
    score: float
    seconds: float
    kept: bool


@dataclass(frozen=True, eq=False)
class ChosenModel:
    """A trained model, and how its settings were chosen."""

    model: XRLinear
    params: XRLinearParams
    trials: tuple[Trial, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LinearTraining:
    """Training of linear rankers on the features of a data set."""

    features: DataSetFeatures
    Y: csr_matrix
    Y_validation: csr_matrix
    names: Sequence[str]
    overrides: PredictionOptions = PredictionOptions()  # noqa: RUF009  it is frozen
    threads: int = -1
    seed: int = 0
    single_label: bool = False
    probabilities: bool | None = None
    label_names: bool | None = None
    keep_training_data: bool | None = None

    def run(self, settings: Settings) -> ChosenModel:
        """Choose the settings on the validation documents, then train on these and the training documents."""
        began = time.monotonic()
        params, trials = self._choose(settings)
        chosen = time.monotonic()
        tfidf, X = self.features.of(params.tfidf)
        if tfidf is not None:
            params = dataclasses.replace(params, tfidf=tfidf.params)  # with the language that was found
        Y = vstack([self.Y, self.Y_validation], format="csr")
        count = Y.shape[0]
        named = self.features.names
        of_names = None if named is None else as_features(X[count:])
        data = LinearData(
            Y, self.features.texts, as_features(X[:count]), tfidf, self.names, name_features=of_names
        )  # fmt: skip
        wanted = self.label_names if named is not None else self.label_names or False
        recipe = LinearRecipe(
            params, self.overrides, probabilities=self.probabilities, label_names=wanted,
            keep_training_data=self._keeps(params, data.X), seed=self.seed, threads=self.threads,
        )  # fmt: skip
        place = InMemory(self.threads)
        model = XRLinear.of(train_linear(data, recipe, place))
        seconds = {"choosing settings": chosen - began} if trials else {}
        seconds["training"] = time.monotonic() - chosen - place.seconds_of_evidence
        if model.evidence is not None:
            seconds["probabilities" if model.evidence.names is None else "label names"] = place.seconds_of_evidence
        return ChosenModel(model, params, tuple(trials), seconds)

    def _keeps(self, params: XRLinearParams, X: Features | None) -> bool:
        """Return whether the model keeps its training data."""
        if self.keep_training_data is not None:
            return self.keep_training_data
        if X is None or X.sparse is None or 8 * X.sparse.nnz > _SMALL:
            return False
        return TrainingData.problem(X, params.ranker) is None

    def _choose(self, settings: Settings) -> tuple[XRLinearParams, list[Trial]]:
        best, trials = settings.params, list[Trial]()
        if not settings.steps:
            return best, trials
        rows = self._sample(settings.sample)
        names = ["the first settings", *(step.name for step in settings.steps)]
        for number, name in enumerate(names):
            params = settings.steps[number - 1].change(best) if number else best
            began = time.monotonic()
            score = self._score(params, rows)
            kept = not trials or score > max(trial.score for trial in trials if trial.kept) + _LEAST_GAIN
            trials.append(Trial(name, score, time.monotonic() - began, kept))
            best = params if kept else best
            _LOG.info(
                "settings %s of %s: %s: %s %.2f%s", number + 1, len(names), name, self.measure, 100 * score,
                ", kept" if kept and number else "",
            )  # fmt: skip
        return best, trials

    @property
    def measure(self) -> str:
        """Name of the measure by which settings are compared."""
        return "accuracy" if self.single_label else "mean of P@1, P@3 and P@5"

    def _score(self, params: XRLinearParams, rows: np.ndarray | slice) -> float:
        """Return the measure of settings on the validation documents."""
        X = self.features.of(params.tfidf)[1]
        count = self.Y.shape[0]
        trees = params.trees[:COMPARED_TREES]
        params = dataclasses.replace(params, tree=trees if len(trees) > 1 else trees[0])
        some, Y, last = X[:count][rows], self.Y[rows], count + self.Y_validation.shape[0]
        if self.features.names is not None:
            some, Y = vstack([some, X[last:]], format="csr"), self.features.names.below(Y)
        data = LinearData(Y, X=as_features(some))
        recipe = LinearRecipe(
            params, self.overrides, probabilities=False, seed=self.seed, threads=self.threads
        )  # fmt: skip
        model = train_linear(data, recipe)
        predicted = model.ranker.predict(as_features(X[count:last]), only_topk=_KS[-1], threads=self.threads)
        measures = evaluate(self.Y_validation, predicted, _KS)
        return measures.at("P", 1) if self.single_label else float(np.mean([measures.at("P", k) for k in _KS]))

    def _sample(self, documents: int | None) -> np.ndarray | slice:
        """Return the training documents to compare settings on, the same ones each time."""
        if documents is None or documents >= self.Y.shape[0]:
            return slice(None)
        chosen = np.random.default_rng(self.seed).choice(self.Y.shape[0], documents, replace=False)
        return np.sort(chosen)


def lines_to_learn(store: TableStore, probabilities: bool | None, label_names: bool | None) -> list[str] | None:
    """Return the label names that a training learns: if they have letters, or the user asks for them; None: none."""
    if store.nr_features or not store.names or probabilities is False or label_names is False:
        return None
    return store.names if label_names or have_letters(store.names) else None
