"""Train linear rankers on a table: compare settings on the validation documents, then train the final model."""

import dataclasses
import json
import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from xmc_tf.common.activity import doing
from xmc_tf.common.errors import InputError
from xmc_tf.common.process.versions import package_versions
from xmc_tf.data import Features, JoinedTexts, TextFile, Texts, as_features
from xmc_tf.fusion.choice import ENOUGH_WITHOUT_NAMES
from xmc_tf.jobs.settings import COMPARED_TREES, DataShape, Settings, announcement, choose_settings
from xmc_tf.jobs.table_job import TableJob, data_set_over_ranks, finish, trained_labels
from xmc_tf.label_names import NameDocuments, have_letters
from xmc_tf.metrics import evaluate, format_table
from xmc_tf.models.incremental.training_data import TrainingData
from xmc_tf.models.linear.executors import InMemory, OverRanks, fit_tfidf
from xmc_tf.models.linear.training import LinearData, LinearOptions, train_linear
from xmc_tf.models.results import count_of, predict_over_ranks, rows_of
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import TfidfParams, XRLinearParams
from xmc_tf.params.tfidf import FEW, TFIDF_FLAGS, with_rare_words
from xmc_tf.pipeline.stages import digest
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.plan.formulas import size
from xmc_tf.rankers.distributed.training import threads_of_rank
from xmc_tf.rankers.distributed.work_folder import has_begun
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.store.checksums import record_file
from xmc_tf.tables.identity import store_contents
from xmc_tf.tables.label_cells import twins_sentence
from xmc_tf.tables.runs import flat_parameters, now
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.summary import Summary, summary_of

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

_LOG = logging.getLogger(__name__)
_KS = (1, 3, 5)
_LEAST_GAIN = 0.001  # smaller differences are chance, and the simpler settings stay
_SMALL = 20_000_000  # bytes of training data that a model keeps by default
_FEW_HELD_OUT = 100  # documents from which probabilities are learned roughly
_ENOUGH = f"train on {ENOUGH_WITHOUT_NAMES} or more"
_EXAMPLES = 3  # test documents that a model keeps, to try it with
# http://…, urn:nbn:fi:au:ysa:Y97, yso:p1234, Q42, 330
_IDENTIFIER = re.compile(r"https?://\S+|[A-Za-z][\w.+-]*:(?=\S*\d)\S+|[A-Za-z]+[_-]?\d[\w:.-]*|\d{3,}[\w:.-]*")


def train_on_table(job: TableJob, options: LinearOptions, communicator: Communicator) -> str | None:
    """Prepare a table, train linear rankers on it, and record the run. All ranks must call it.

    Rank 0 computes the features, chooses the settings and returns the summary to print. All ranks train the rankers and
    predict; the model does not depend on their number.
    """
    began, start, seconds = now(), time.monotonic(), dict[str, float]()
    with _timed(seconds, "preparing"):
        store = data_set_over_ranks(job, communicator)
        about = summary_of(store)
    threads = threads_of_rank(communicator, options.threads)
    unlabelled: Texts = TextFile(job.texts) if job.texts else ()
    features = DataSetFeatures(store, threads, lines_to_learn(store, options), unlabelled)
    effort = options.effort or "balanced"
    options = dataclasses.replace(options, effort=None, threads=threads)
    training = LinearTraining(features, options, about.single_label, seconds)

    def chosen() -> dict[str, Any]:
        if not about.documents["train"]:
            raise InputError(f"{store.path} has no training documents", fix="lower --test and --validation")
        if about.question:  # the summary repeats it minutes later
            _LOG.warning("%s", about.question)
        warn_of_case(store.names or ())
        shape = shape_of(store, about)
        fixed = job.given | set(TFIDF_FLAGS) if store.nr_features else job.given
        settings = choose_settings(shape, options.params, fixed=fixed, minutes=job.minutes, effort=effort)
        _LOG.info(announcement(shape, settings))
        with _timed(seconds, "features"):
            settings = settings.with_tfidf(features.of(settings.params.tfidf)[0])
        return training.choose(settings).to_json()

    params = XRLinearParams.from_json(on_first_rank(communicator, chosen))
    model = training.train(params, job.model, communicator)
    test = store.features("test") if store.nr_features else store.texts("test")
    predicted = None
    with _timed(seconds, "testing"):
        if store.count("test"):
            predicted = predict_over_ranks(
                lambda rows: model.predict(rows_of(test, rows), threads=threads), count_of(test), communicator
            )

    def recorded() -> str:
        words = [] if store.nr_features else [f"features: {params.tfidf.description}"]
        return finish(
            job, TableStore.open(store.path, write=True), about, predicted, start, began=began, kind="XR-Linear",
            parameters=flat_parameters(params.to_json()), durations=seconds,
            chosen=[*training.reasons, *words, *_explain_choices(training, model, params, about)],
            trials=[vars(trial) for trial in training.trials], tried=training.tried, versions=package_versions(),
        )  # fmt: skip

    summary = on_first_rank(communicator, recorded)
    return None if communicator.rank else summary


class DataSetFeatures:
    """TF-IDF features of training documents, validation documents, label names, and test documents.

    The vectorizer is fitted to label names, training texts and validation texts, but not to the labels of documents.
    Settings can therefore be compared on the validation documents, and the final model reuses the features. They are
    computed once for each set of options.
    """

    def __init__(
        self, store: TableStore, threads: int = -1, lines: Sequence[str] | None = None, unlabelled: Texts = ()
    ) -> None:
        self.store, self.threads, self.unlabelled = store, threads, unlabelled
        self.names = None if lines is None or store.nr_features else NameDocuments.of(lines)
        if self.names is None and len(unlabelled):
            raise InputError(
                "--texts needs names of labels: these texts show which words of names are rare",
                expected="label names (--names-file names identifiers), and neither --label-names false nor features",
                fix="leave --texts out, or give names",
            )  # fmt: skip
        self._known: dict[str, tuple[Tfidf, csr_matrix]] = {}

    @property
    def texts(self) -> JoinedTexts | None:
        """The texts of training documents followed by validation documents; None if the table has features."""
        if self.store.nr_features:
            return None
        return JoinedTexts([self.store.texts("train"), self.store.texts("validation")])

    def of(self, params: TfidfParams) -> "tuple[Tfidf | None, csr_matrix]":
        """Return the vectorizer, and one matrix of features: training documents, validation documents, label names."""
        texts = self.texts
        if texts is None:
            return None, self._of_table
        first, fitted = 0, params
        if self.names is not None:
            parts = [*texts.sources, self.names.texts]
            if len(self.unlabelled) and len(texts) < FEW:
                parts, first, fitted = [self.unlabelled, *parts], len(self.unlabelled), with_rare_words(params)
            texts = JoinedTexts(parts, len(self.names.texts))
        key = json.dumps(params.to_json(), sort_keys=True)
        if key not in self._known:
            tfidf, features = fit_tfidf(texts, fitted, self.threads)
            assert features.sparse is not None
            # Also by the parameters that contain the language that was found.
            found = json.dumps(tfidf.params.to_json(), sort_keys=True)
            self._known[key] = self._known[found] = tfidf, features.sparse[first:]
        return self._known[key]

    @cached_property
    def _of_table(self) -> csr_matrix:
        return vstack([self.store.features(split) for split in ("train", "validation")], format="csr")


@dataclass(frozen=True)
class Trial:
    """A change of settings and its result on the validation documents."""

    setting: str  # "" for the first settings
    value: str
    score: float
    seconds: float
    kept: bool


class LinearTraining:
    """Choose the settings of linear rankers for a data set, and train them."""

    def __init__(
        self, features: DataSetFeatures, options: LinearOptions, single_label: bool, seconds: dict[str, float]
    ) -> None:
        self.features, self.options, self.seconds = features, options, seconds
        self.Y, self.Y_validation = (features.store.labels(split) for split in ("train", "validation"))
        self.single_label = single_label
        self.measure = "accuracy" if single_label else "mean of P@1, P@3 and P@5"
        self.reasons: Sequence[str] = ()
        self.trials: list[Trial] = []
        self.tried: list[str] = []  # the table of the settings that were tried

    def choose(self, settings: Settings) -> XRLinearParams:
        """Choose the settings on the validation documents."""
        began, self.reasons = time.monotonic(), settings.reasons
        params = self._chosen(settings)
        if self.trials:
            self.seconds["choosing settings"] = round(time.monotonic() - began, 2)
        tfidf = self.features.of(params.tfidf)[0]
        # With the language that was found.
        return params if tfidf is None else dataclasses.replace(params, tfidf=tfidf.params)

    def train(self, params: XRLinearParams, folder: Path, communicator: Communicator) -> XRLinear:
        """Train a model with these settings on training and validation documents, and save it."""
        executor: InMemory | OverRanks = InMemory(self.options.threads)
        if communicator.size > 1 or has_begun(folder):
            store = self.features.store
            further = self.features.unlabelled
            inputs = [
                store.meta("splits"), self._final(params).decisive(not store.nr_features),
                *([record_file(further.path)] if isinstance(further, TextFile) else []),
            ]  # fmt: skip
            key = on_first_rank(communicator, lambda: digest([store_contents(store), *inputs]))
            executor = OverRanks(communicator, folder, key, self.options.threads)
        model = self.fit(params, executor)
        if isinstance(executor, InMemory):
            model.save(folder)
            return model
        executor.save(model)
        return run_on_all_ranks(communicator, lambda: XRLinear.load(folder))

    def fit(self, params: XRLinearParams, executor: InMemory | OverRanks) -> XRLinear:
        """Return a model with these settings, trained on training and validation documents."""
        began, store, named = time.monotonic(), self.features.store, self.features.names is not None
        tfidf, X = executor.shared(lambda: self.features.of(params.tfidf))
        Y = trained_labels(store)
        documents, names = (X[: Y.shape[0]], as_features(X[Y.shape[0] :])) if named else (X, None)
        data = LinearData(
            Y, self.features.texts, as_features(documents), tfidf, store.names, name_features=names,
            unlabelled=self.features.unlabelled,
        )  # fmt: skip
        options = dataclasses.replace(self._final(params), keep_training_data=self._keeps(params, data.X))
        model = XRLinear.of(train_linear(data, options, executor))
        self.seconds["training"] = round(time.monotonic() - began - executor.seconds_of_evidence, 2)
        if model.evidence is not None:
            part = "probabilities" if model.evidence.names is None else "label names"
            self.seconds[part] = round(executor.seconds_of_evidence, 2)
        model.metadata = model.metadata.with_columns(store.columns)
        if store.count("test") and not store.nr_features:
            model.metadata = model.metadata.with_examples(list(store.texts("test")[:_EXAMPLES]))
        return model

    def _final(self, params: XRLinearParams) -> LinearOptions:
        named = self.features.names is not None
        label_names = self.options.label_names if named else self.options.label_names or False
        return dataclasses.replace(self.options, params=params, label_names=label_names)

    def _keeps(self, params: XRLinearParams, X: Features | None) -> bool:
        """Return whether the model should keep its training data."""
        if self.options.keep_training_data is not None:
            return self.options.keep_training_data
        if X is None or X.sparse is None or 8 * X.sparse.nnz > _SMALL:
            return False
        return TrainingData.problem(X, params.ranker) is None

    def _chosen(self, settings: Settings) -> XRLinearParams:
        best = settings.params
        if not settings.steps:
            return best
        rows = self._sample(settings.sample)
        for number, step in enumerate([None, *settings.steps]):
            params = best if step is None else step.change(best)
            began = time.monotonic()
            score = self._score(params, rows)
            kept = step is None or score > max(trial.score for trial in self.trials if trial.kept) + _LEAST_GAIN
            setting, value = ("", "") if step is None else (step.setting, step.value(params))
            self.trials.append(Trial(setting, value, score, time.monotonic() - began, kept))
            best = params if kept else best
            _LOG.info(
                "settings %s of %s: %s: %s %.2f%s", number + 1, len(settings.steps) + 1,
                f"{setting}: {value}" if setting else "the first ones", self.measure, 100 * score,
                ", kept" if kept and number else "",
            )  # fmt: skip
        self.tried = self._tried(settings, best)
        return best

    def _tried(self, settings: Settings, best: XRLinearParams) -> list[str]:
        """Return the lines of a table: each setting that was tried, its value, and the gain."""
        gains: dict[str, float] = {}
        score = self.trials[0].score
        for trial in self.trials[1:]:
            gains[trial.setting] = gains.get(trial.setting, 0.0) + (trial.score - score if trial.kept else 0.0)
            score = trial.score if trial.kept else score
        value = {step.setting: step.value(best) for step in settings.steps}
        rows = [[name, value[name], f"{100 * gain:+.2f}" if gain else "–"] for name, gain in gains.items()]
        table = format_table(["setting", "chosen", "gain"], rows)
        count = self.Y_validation.shape[0]
        return [f"{self.measure} on {count:,} validation documents: {100 * score:.2f}", *table.splitlines()]

    def _score(self, params: XRLinearParams, rows: np.ndarray | slice) -> float:
        """Return the metric of these settings on the validation documents."""
        X = self.features.of(params.tfidf)[1]
        count = self.Y.shape[0]
        trees = params.trees[:COMPARED_TREES]
        params = dataclasses.replace(params, tree=trees if len(trees) > 1 else trees[0])
        some, Y, last = X[:count][rows], self.Y[rows], count + self.Y_validation.shape[0]
        names = self.features.names
        if names is not None:
            some, Y = vstack([some, X[last:]], format="csr"), names.below(Y)
        options = dataclasses.replace(
            self.options, params=params, probabilities=False, label_names=None, keep_training_data=False
        )
        data = LinearData(Y, X=as_features(some), nr_names=0 if names is None else len(names.texts))
        model = train_linear(data, options)
        predicted = model.ranker.predict(as_features(X[count:last]), only_topk=_KS[-1], threads=options.threads)
        measures = evaluate(self.Y_validation, predicted, _KS)
        return measures.at("P", 1) if self.single_label else float(np.mean([measures.at("P", k) for k in _KS]))

    def _sample(self, documents: int | None) -> np.ndarray | slice:
        """Return a sample of the training documents to compare settings on; it is the same in each call."""
        if documents is None or documents >= self.Y.shape[0]:
            return slice(None)
        chosen = np.random.default_rng(self.options.seed).choice(self.Y.shape[0], documents, replace=False)
        return np.sort(chosen)


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    """Record the duration of the ``with`` block as a part of the job."""
    began = time.monotonic()
    with doing(part):
        yield
    seconds[part] = round(time.monotonic() - began, 2)


def lines_to_learn(store: TableStore, options: LinearOptions) -> list[str] | None:
    """Return the label names to train on, or None. By default, names are used if they contain letters."""
    if store.nr_features or not store.names or options.probabilities is False or options.label_names is False:
        return None
    return store.names if options.label_names or have_letters(store.names) else None


def shape_of(store: TableStore, about: Summary) -> DataShape:
    letters = store.connection.execute(
        "SELECT coalesce(avg(length(text)), 0) FROM (SELECT text FROM documents LIMIT 10000)"
    ).fetchone()[0]
    return DataShape(
        about.documents["train"], about.documents["validation"], about.labels, max(letters / 6, 1.0), about.single_label
    )


def _explain_choices(training: LinearTraining, model: XRLinear, params: XRLinearParams, about: Summary) -> list[str]:
    """Return sentences that say what was chosen and why, and which documents the model was trained on."""
    out = []
    evidence = model.evidence
    held_out = 0 if evidence is None else evidence.fusion.nr_held_out
    learned = f"learned from {held_out:,} held-out documents"
    if evidence is not None and evidence.names is not None:
        scores = (
            "scores are probabilities" if held_out >= _FEW_HELD_OUT
            else f"scores are rough probabilities, {learned}; {_ENOUGH}" if held_out
            else f"scores are no probabilities, because the documents are too few to learn them; {_ENOUGH}"
        )  # fmt: skip
        out.append(f"label names in the text are evidence, and {scores} (--label-names true)")
    elif evidence is not None:
        out.append(f"the scores are probabilities, {learned} (--probabilities true)")
    identifiers = [name for name in model.names or () if _IDENTIFIER.fullmatch(name)]
    if len(identifiers) > 0.5 * len(model.names or ()):
        out.append(
            f"labels are identifiers, such as {identifiers[0]}: --names-file FILE, a SKOS vocabulary or lines of "
            "identifier, tab and name, makes their names evidence"
        )
    grows, space = model.training_data is not None, size(8.0 * training.features.of(params.tfidf)[1].nnz)
    out.append(
        f"the features of the documents are kept ({space}), so that documents can be appended and labels corrected; "
        "anyone who has the model can read them (--keep-training-data false leaves them out)"
        if grows else f"documents cannot be appended to this model, nor labels corrected; to allow it, train with "
        f"--keep-training-data true, which takes {space}"
    )  # fmt: skip
    if validation := about.documents["validation"]:
        both = about.documents["train"] + validation
        out.append(
            f"the model was trained on the {both:,} training and validation documents, but not on the test documents"
        )
    return out


def warn_of_case(names: Sequence[str]) -> None:
    """Warn of labels that differ only in case or blanks: each of them is trained on only a part of the documents."""
    if sentence := twins_sentence(names, "--fold-labels"):
        _LOG.warning("%s", sentence)
