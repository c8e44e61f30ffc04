"""Train on a table: prepare a data set, choose settings, train, measure, record the run, summarize."""

import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, vstack

from xmc_tf.common.activity import doing
from xmc_tf.common.errors import InputError
from xmc_tf.common.process.versions import package_versions
from xmc_tf.jobs.linear import ChosenModel, DataSetFeatures, LinearTraining, lines_to_learn
from xmc_tf.jobs.settings import DataShape, announcement, choose_settings
from xmc_tf.jobs.summary import JobSummary, Results, examples_of, next_commands
from xmc_tf.metrics import evaluate
from xmc_tf.metrics.category_paths import level_shares
from xmc_tf.metrics.single_label import measure_single_label
from xmc_tf.models.growing.trained_documents import TrainedDocuments
from xmc_tf.models.loading import load
from xmc_tf.params import PredictionOptions, XRLinearParams
from xmc_tf.params.tfidf import TFIDF_FLAGS
from xmc_tf.report.inputs import ReportInputs, curves_of
from xmc_tf.report.writing import write_report
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.runs import Run, flat_parameters, now, record_run
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.summary import Summary, summary_of
from xmc_tf.tables.table_flags import database_of

_LOG = logging.getLogger(__name__)
_KS = (1, 3, 5, 10)
_EXAMPLES = 3  # test documents that a model keeps, to try it with
# http://…, urn:nbn:fi:au:ysa:Y97, yso:p1234, Q42, 330
_IDENTIFIER = re.compile(r"https?://\S+|[A-Za-z][\w.+-]*:(?=\S*\d)\S+|[A-Za-z]+[_-]?\d[\w:.-]*|\d{3,}[\w:.-]*")
_LEAST_TESTED = 20  # test documents
_NEXT_TO_NOTHING, _LEAST_GAIN = 0.1, 0.02  # P@1, and by how much it is better than that of the most frequent label
_FEW_TESTED = 50  # test documents, of which each changes a measure by two points or more


@dataclass(frozen=True)
class TableJob:
    """A training on a table."""

    table: Path
    model: Path
    options: PrepareOptions
    database: Path | None = None
    command: str = ""
    minutes: float | None = None
    effort: str = "balanced"
    threads: int = -1
    seed: int = 0
    report: Path | None = None


@dataclass(frozen=True)
class LinearOptions:
    """The user's options of linear rankers."""

    params: XRLinearParams
    fixed: frozenset[str] = frozenset()
    overrides: PredictionOptions = PredictionOptions()  # noqa: RUF009  it is frozen
    probabilities: bool | None = None
    label_names: bool | None = None
    keep_training_data: bool | None = None


def data_set_of(job: TableJob) -> TableStore:
    """Return the data set of a table, open for writing; it is prepared first if necessary."""
    if TableStore.is_data_set(job.table):
        store = TableStore.open(job.table, write=True)
        if store.meta("rows_read") != "all" or store.meta("splits") is None:
            raise InputError(
                f"{job.table} is not complete: its preparation was interrupted",
                fix="run the same xmc-tf prepare command again, which resumes",
            )
        return store
    return prepare(job.table, job.database or database_of(job.table), job.options)


def train_linear(job: TableJob, options: LinearOptions, ranks: int = 1) -> JobSummary:
    """Train linear rankers on a table, from its rows to the record of the run."""
    if ranks > 1:
        raise InputError(
            "linear rankers on a table are trained by one process", received=f"{ranks} ranks",
            fix="start it without a launcher; or write files and use mpiexec -n N python -m xmc_tf.linear.train",
        )  # fmt: skip
    began, timed = now(), _Times()
    with timed("preparing"):
        store = data_set_of(job)
        about = summary_of(store)
    _require_documents(store, about)
    if about.question:  # the summary repeats it minutes later
        _LOG.warning("%s", about.question)
    warn_of_case(store.names or ())
    shape = shape_of(store, about)
    fixed = options.fixed | set(TFIDF_FLAGS) if store.nr_features else options.fixed
    if options.keep_training_data:  # a model with other negatives could not grow
        fixed |= {"negative_sampling"}
    settings = choose_settings(shape, options.params, fixed=fixed, minutes=job.minutes, effort=job.effort)
    _LOG.info(announcement(shape, settings, job.effort))
    learned = lines_to_learn(store, options.probabilities, options.label_names)
    features = DataSetFeatures(store, job.threads, learned)
    training = LinearTraining(
        features, store.labels("train"), store.labels("validation"), store.names, options.overrides,
        job.threads, job.seed, about.single_label, options.probabilities, options.label_names,
        options.keep_training_data,
    )  # fmt: skip
    with timed("features"):
        settings = settings.with_tfidf(features.of(settings.params.tfidf)[0])
    chosen = training.run(settings)
    timed.add(chosen.seconds)
    chosen.model.metadata = chosen.model.metadata.with_columns(store.columns)
    if store.count("test") and not store.nr_features:
        chosen.model.metadata = chosen.model.metadata.with_examples(list(store.texts("test")[:_EXAMPLES]))
    model = chosen.model
    if (trained := features.texts) is not None:
        model = model.knowing(TrainedDocuments.of(trained))
    model.save(job.model)
    predicted = None
    with timed("testing"):
        if store.count("test"):
            X, texts = features.of_test(chosen.params.tfidf), None if store.nr_features else store.texts("test")
            predicted = chosen.model.predict(X if texts is None else texts, X=X, threads=job.threads)
    results = results_of(store, predicted, about.single_label)
    words = [] if store.nr_features else [f"features: {chosen.params.tfidf.description}"]
    sentences = [*settings.reasons, *words, *_account(training, chosen, about)]
    run = Run(
        began=began, seconds=timed.total, command=job.command, model=str(job.model), kind="XR-Linear",
        parameters=flat_parameters(chosen.params.to_json()), metrics=results.metrics() if results else {},
        durations=timed.seconds, chosen=sentences, trials=[vars(trial) for trial in chosen.trials],
        versions=package_versions(), documents=about.documents, labels=about.labels,
    )  # fmt: skip
    return finish(job, store, about, run, results, predicted)


def finish(
    job: TableJob, store: TableStore, about: Summary, run: Run, results: Results | None, predicted: csr_matrix | None
) -> JobSummary:
    """Record a run, and return the summary to print."""
    try:
        recorded = f"run {record_run(store, run, predicted)}"
    except (InputError, OSError) as error:  # the model is complete
        _LOG.warning("the run is not recorded: %s", error)
        recorded = "run not recorded"
    files = {"model": job.model, "data set": store.path}
    if job.report is not None and predicted is not None:
        files = {"report": _write_report(job, store, run, predicted), **files}
    columns = store.columns
    remarks = [] if results is None else _remarks(results, about)
    return JobSummary(
        data=[f"{store.path}, {recorded}", *about.text().splitlines()],
        settings=run.chosen,
        results=results,
        remarks=remarks,
        files=files,
        next=next_commands(job.table, columns, store.path, job.model),
        durations=run.durations,
        unmeasured=_unmeasured(job, store),
        examples=[]
        if predicted is None or store.nr_features
        else examples_of(store.texts("test"), predicted, store.names),
    )


def _remarks(results: Results, about: Summary) -> list[str]:
    """Return remarks on the reliability of the measures, and a question if the model has learned next to nothing."""
    count, right = results.overall.documents, results.overall.at("P", 1)
    if count < _LEAST_TESTED:
        few = "1 test document is" if count == 1 else f"{count:,} test documents are"
        return [
            f"{few} too few to measure a model: these figures are chance. --test 0.5 holds out half of the documents"
        ]
    found = []
    if count < _FEW_TESTED:
        found.append(f"with {count:,} test documents, one of them changes P@1 by {100 / count:.0f} points")
    if right < _NEXT_TO_NOTHING or right < results.baseline + _LEAST_GAIN <= 0.5:
        found.append(f"the model has learned next to nothing. {about.asked()}")
    return found


def _unmeasured(job: TableJob, store: TableStore) -> str:
    """Return why there are no measures."""
    wanted = (store.meta("splits") or {}).get("test", 0)
    why = f"too few documents to set {wanted:.0%} of them aside for testing" if wanted else "no test documents"
    return f"{why}: nothing was measured" + ("" if job.report is None else ", and there is no report")


def _write_report(job: TableJob, store: TableStore, run: Run, predicted: csr_matrix) -> Path:
    assert job.report is not None
    title = f"{job.model.name}: labels of {job.table.name}"
    settings = {"command": run.command, "data set": store.path.name, "choice": "; ".join(run.chosen)}
    settings |= {f"time: {part}": f"{seconds:,.1f} s" for part, seconds in run.durations.items()}
    readable = not store.nr_features
    inputs = ReportInputs(
        title, store.labels("test"), predicted, store.names, store.texts("test") if readable else None,
        document_names=[f"{name} of {job.table.name}" for name in store.document_names("test")],
        training_labels=trained_labels(store), model=load(job.model) if readable else None, curves=curves_of(run),
        settings=settings,
    )  # fmt: skip
    return write_report(inputs, job.report, model_folder=job.model, data=job.table.name)


def trained_labels(store: TableStore) -> csr_matrix:
    """Return the labels of the training and validation documents."""
    return vstack([store.labels("train"), store.labels("validation")], format="csr")


def shape_of(store: TableStore, about: Summary) -> DataShape:
    letters = store.connection.execute(
        "SELECT coalesce(avg(length(text)), 0) FROM (SELECT text FROM documents LIMIT 10000)"
    ).fetchone()[0]
    return DataShape(
        about.documents["train"], about.documents["validation"], about.labels, max(letters / 6, 1.0), about.single_label
    )


def results_of(store: TableStore, predicted: csr_matrix | None, single_label: bool) -> Results | None:
    """Return the measures of the test documents; None if there are none."""
    if predicted is None:
        return None
    truth = store.labels("test")
    known = trained_labels(store)
    frequency = np.bincount(known.indices, minlength=known.shape[1])
    ks = [k for k in _KS if k <= truth.shape[1]]
    return Results(
        evaluate(truth, predicted, ks, training_labels=known),
        store.names,
        measure_single_label(truth, predicted) if single_label else None,
        baseline=float(np.mean(truth[:, int(frequency.argmax())].toarray())),
        unseen=float(np.mean(frequency[truth.indices] == 0)) if truth.nnz else 0.0,
        levels=level_shares(store.names, truth, predicted),
    )


def _account(training: LinearTraining, chosen: ChosenModel, about: Summary) -> list[str]:
    """Return sentences about what was chosen, why, and what was trained on."""
    out = []
    if chosen.trials:
        first, best = chosen.trials[0], [trial for trial in chosen.trials if trial.kept][-1]
        kept = [trial.name for trial in chosen.trials[1:] if trial.kept]
        left = [trial.name for trial in chosen.trials[1:] if not trial.kept]
        scores = f"{training.measure} of the validation documents: {100 * best.score:.2f}"
        if kept:
            before = f"{100 * first.score:.2f} without"
            out.append(f"{' and '.join(kept)}: better than the first settings ({scores}, {before})")
        if left:
            out.append(f"tried without gain: {', '.join(left)}" + ("" if kept else f" ({scores})"))
    evidence = chosen.model.evidence
    if evidence is not None and evidence.names is not None:
        out.append(
            "names of labels in the text are evidence too, and the scores are probabilities (--label-names true)"
        )
    elif evidence is not None:
        learned = f"learned from {evidence.fusion.nr_held_out:,} held-out documents"
        out.append(f"the scores are probabilities, {learned} (--probabilities true)")
    if chosen.model.names and sum(map(_looks_like_id, chosen.model.names)) > 0.5 * len(chosen.model.names):
        example = next(filter(_looks_like_id, chosen.model.names))
        out.append(
            f"labels are identifiers, such as {example}: --names-file FILE, a SKOS vocabulary or lines of "
            "identifier, tab and name, makes their names evidence"
        )
    grows, size = chosen.model.own_training is not None, _size_of_kept(training, chosen)
    out.append(
        f"the features of the documents are kept ({size}), so that documents can be appended and labels corrected; "
        "whoever has the model has them (--keep-training-data false leaves them out)"
        if grows else f"documents cannot be appended to this model, and labels not be corrected: train with "
        f"--keep-training-data true, which takes {size}"
    )  # fmt: skip
    if validation := about.documents["validation"]:
        both = about.documents["train"] + validation
        out.append(
            f"the model was trained on training and validation documents, {both:,}: more documents make it better, and "
            "the test documents stay apart"
        )
    return out


def warn_of_case(names: Sequence[str]) -> None:
    """Warn of labels that differ only by upper and lower case, because each has only a part of the documents."""
    first: dict[str, str] = {}
    alike = [(first[key], name) for name in names if first.setdefault(key := name.casefold(), name) != name]
    if alike:
        _LOG.warning(
            "%s of %s labels differ from another one by upper and lower case alone, such as %r and %r, and are trained "
            "as different labels; use one spelling in the table to train them as one",
            f"{len(alike):,}", f"{len(names):,}", *alike[0],
        )  # fmt: skip


def _looks_like_id(name: str) -> bool:
    """Return whether a label is an identifier or an address rather than a name."""
    return _IDENTIFIER.fullmatch(name) is not None


def _size_of_kept(training: LinearTraining, chosen: ChosenModel) -> str:
    """Return the size of the training data that a model keeps to grow."""
    return f"{8 * training.features.of(chosen.params.tfidf)[1].nnz / 1e6:,.1f} MB"


def _require_documents(store: TableStore, about: Summary) -> None:
    if not about.documents["train"]:
        raise InputError(f"{store.path} has no training documents", fix="lower --test and --validation")


class _Times:
    """Durations of the parts of a job."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Measure the ``with`` block as a part of the job."""
        began = time.monotonic()
        with doing(part):
            yield
        self.add({part: time.monotonic() - began})

    def add(self, seconds: dict[str, float]) -> None:
        """Add durations that were measured elsewhere."""
        self.seconds |= {part: round(value, 2) for part, value in seconds.items()}

    @property
    def total(self) -> float:
        """Seconds since the beginning."""
        return round(time.monotonic() - self._began, 2)
