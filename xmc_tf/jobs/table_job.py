"""The parts shared by all training jobs on a table: inputs, data set, metrics, record, report and summary."""

import logging
import re
import shlex
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from xmc_tf.common.errors import InputError
from xmc_tf.common.memory import peak_memory
from xmc_tf.common.process.invocation import as_called
from xmc_tf.common.process.terminal import printable
from xmc_tf.jobs.settings import check_minutes
from xmc_tf.metrics import Measures, evaluate, format_table, percent
from xmc_tf.metrics.category_paths import level_sentence, level_shares
from xmc_tf.metrics.single_label import SingleLabelMeasures, measure_single_label
from xmc_tf.models.loading import load
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.report.inputs import ReportInputs, curves_of
from xmc_tf.report.writing import write_report
from xmc_tf.tables.columns import TrainedColumns
from xmc_tf.tables.preparation import PrepareOptions, has_changed, prepare
from xmc_tf.tables.runs import Run, record_run
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.summary import Summary
from xmc_tf.tables.table_flags import database_of

_LOG = logging.getLogger(__name__)
_KS = (1, 3, 5, 10)
_LEAST_TESTED = 20  # test documents
_NEXT_TO_NOTHING, _LEAST_GAIN = 0.1, 0.02  # P@1, and by how much it is better than that of the most frequent label
_FEW_TESTED = 50  # test documents, of which each changes a measure by two points or more
_WIDTH, _LEFT = 100, 11
_EXAMPLES, _EXAMPLE_LABELS = 3, 5
_SHOWN = ("P", "R", "nDCG", "PSP")


@dataclass(frozen=True)
class TableJob:
    """The inputs and outputs of a training run on a table; model options are separate."""

    table: Path  # or a data set that ``xmc-tf prepare`` has made
    model: Path
    preparation: PrepareOptions
    database: Path | None  # the data set; None: beside the table
    command: str  # for the record of the run
    report: Path | None
    minutes: float | None  # for the choice of settings; None: as many as the effort takes
    given: frozenset[str]  # names of the parameters that the user has set
    texts: Path | None = None  # a file of texts without labels

    def __post_init__(self) -> None:
        check_minutes(self.minutes)
        if not self.command.isascii() and re.search("[\ud800-\udfff]", self.command):
            raise InputError(
                "the command line is not UTF-8, and could not be recorded with the run",
                expected="names and texts in UTF-8", received=self.command, fix="rename the file or folder",
            )  # fmt: skip


@dataclass(frozen=True)
class Results:
    """The metrics on the test documents."""

    overall: Measures
    names: Sequence[str]
    single: SingleLabelMeasures | None = None
    baseline: float = 0.0  # P@1 of always predicting the most frequent label
    unseen: float = 0.0  # share of the test documents' labels that no other document has
    levels: Sequence[float] = ()  # of category paths: share of documents whose best label is right, by level

    def metrics(self) -> dict[str, float]:
        """Return all metrics by name, as stored in the record of the run."""
        found = {
            f"{name}@{k}": self.overall.at(name, k)
            for name in self.overall.values
            for k in self.overall.ks
            if self.overall.at(name, k) == self.overall.at(name, k)
        }
        if self.single is not None:
            found |= self.single.to_json()
        return found | {f"level {level}": share for level, share in enumerate(self.levels, 1)}

    def lines(self) -> list[str]:
        out = [f"measured on {self.overall.documents:,} test documents, which were not used in training", ""]
        levels = ["", *_wrapped([level_sentence(self.levels)])] if self.levels else []
        if self.single is not None:
            return [*out, *self.single.lines(self.names, self.baseline), *levels]
        ks = [f"@{k}" for k in self.overall.ks]
        rows = [[name, *map(percent, self.overall.values[name])] for name in _SHOWN if name in self.overall.values]
        out += format_table(["%", *ks], rows, indent="  ").splitlines()
        out += ["", "P: share of the first k labels that are right; R: share of a document's labels among them;"]
        out += ["nDCG: like both, but the first ranks count most; PSP: like P, but rare labels count more"]
        out.append(f"always predicting the most frequent label: P@1 {percent(self.baseline)}")
        if self.unseen:
            out.append(f"{percent(self.unseen)} % of the test documents' labels occur in no other document")
        return [*out, *levels]


def data_set_of(job: TableJob) -> TableStore:
    """Return the data set of a table, open for writing; the table is prepared first if necessary."""
    if TableStore.is_data_set(job.table):
        store = TableStore.open(job.table, write=True)
        if store.meta("rows_read") != "all" or store.meta("splits") is None:
            raise InputError(
                f"{job.table} is not complete: its preparation was interrupted",
                fix="run the same xmc-tf prepare command again to resume",
            )
        table = store.meta("table")
        _LOG.info("data set: reused as it was prepared from %s", table or "a table in Python")
        if table and has_changed(store, Path(job.table).parent / table):
            _LOG.warning("%s has changed since; to train on its rows of today, name it instead of %s", table, job.table)
        return store
    return prepare(job.table, job.database or database_of(job.table), job.preparation)


def data_set_over_ranks(job: TableJob, communicator: Communicator) -> TableStore:
    """Prepare the data set on rank 0, and return it on all ranks, open for reading."""

    def prepared() -> str:
        store = data_set_of(job)
        store.close()
        return str(store.path)

    path = on_first_rank(communicator, prepared)
    return run_on_all_ranks(communicator, lambda: TableStore.open(path))


def finish(
    job: TableJob, store: TableStore, about: Summary, predicted: csr_matrix | None, start: float,
    tried: Sequence[str] = (), compared: Sequence[str] = (), **record: Any,
) -> str:  # fmt: skip
    """Measure the predictions, save the record of the run, and return the summary to print.

    ``tried`` has the lines of the table of settings, ``compared`` those of a comparison with another model, whose last
    one is a sentence, and ``record`` further fields of the record.
    """
    results = None if predicted is None else _results(store, predicted, about.single_label)
    run = Run(
        command=job.command, model=str(job.model), metrics=results.metrics() if results else {},
        seconds=round(time.monotonic() - start, 2), documents=about.documents, labels=about.labels, **record,
    )  # fmt: skip
    try:
        recorded = f"run {record_run(store, run, predicted)}"
    except (InputError, OSError) as error:  # the model is complete
        _LOG.warning("the run is not recorded: %s", error)
        recorded = "run not recorded"
    files = {"model": job.model, "data set": store.path}
    if job.report is not None and predicted is not None:
        files = {"report": _write_report(job, store, run, predicted), **files}
    readable = predicted is not None and not store.nr_features
    return _summary({
        "data": _wrapped([f"{store.path}, {recorded}", *about.text().splitlines()]),
        "settings": [*tried, *([""] if tried else []), *_wrapped(run.chosen)],
        "results": _wrapped([_unmeasured(job, store)])
        if results is None
        else [*results.lines(), *_wrapped(_remarks(results, about))],
        "compared": [*compared[:-1], *_wrapped(compared[-1:])],
        "examples": _examples(store.texts("test"), predicted, store.names) if readable else [],
        "time": _wrapped([
            f"{run.seconds:,.0f} s, {peak_memory()}: "
            + ", ".join(f"{part} {seconds:,.0f} s" for part, seconds in run.durations.items())
        ]),
        "files": [f"{what + ':':<10} {path}" for what, path in files.items()],
        "next": _next_commands(store.columns, store.path, job.model),
    })  # fmt: skip


def _remarks(results: Results, about: Summary) -> list[str]:
    """Return remarks on the reliability of the metrics, and a question if the model has hardly learned anything."""
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
    """Return the reason why the run has no metrics."""
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


def _results(store: TableStore, predicted: csr_matrix, single_label: bool) -> Results:
    truth = store.labels("test")
    known = trained_labels(store)
    frequency = np.bincount(known.indices, minlength=known.shape[1])
    ks = [k for k in _KS if k <= truth.shape[1]]
    return Results(
        evaluate(truth, predicted, ks, training_labels=known), store.names,
        measure_single_label(truth, predicted) if single_label else None,
        baseline=float(np.mean(truth[:, int(frequency.argmax())].toarray())),
        unseen=float(np.mean(frequency[truth.indices] == 0)) if truth.nnz else 0.0,
        levels=level_shares(store.names, truth, predicted),
    )  # fmt: skip


def _summary(parts: dict[str, Sequence[str]]) -> str:
    """Return the summary for the terminal, with the title and lines of each part."""
    out = []
    for title, (first, *others) in ((title, lines) for title, lines in parts.items() if lines):
        rest = [f"{'':<{_LEFT}}{line}".rstrip() for line in others]
        out.append("\n".join([f"{title:<{_LEFT}}{first}".rstrip(), *rest]))
    return "\n" + "\n\n".join(out)


def _next_commands(columns: TrainedColumns | None, database: Path, model: Path) -> list[str]:
    """Return lines that suggest commands for the new model; for a table of features, only one to compare runs."""
    model_flag = f"-m {shlex.quote(str(model))}"
    commands = {
        "label another table": f"predict NEW.csv {model_flag} -o labels.csv",
        "measure it on another table": f"evaluate NEW.csv {model_flag}",
        "label one text": f'predict {model_flag} -q "a text"',
        "compare all runs": f"runs {shlex.quote(str(database))}",
        "serve it": f"export {model_flag} -o served/1",
    }
    if columns is None:
        commands = {"compare all runs": commands["compare all runs"]}
    called = {about: as_called(f"python -m xmc_tf.{command}") for about, command in commands.items()}
    # As a module of its own, predict is only for linear models.
    return [
        line
        for about, command in called.items()
        for line in (f"{about}:", f"  {command.replace('python -m xmc_tf.predict', 'python -m xmc_tf predict')}")
    ]


def _examples(texts: Sequence[str], predicted: csr_matrix, names: Sequence[str]) -> list[str]:
    """Return lines that show the first test documents with their best labels."""
    lines = []
    for text, a, b in zip(texts, predicted.indptr, predicted.indptr[1:], strict=False):
        best = zip(predicted.indices[a:b][:_EXAMPLE_LABELS], predicted.data[a:b], strict=False)
        labels = [f"{_shortened(names[at].partition(chr(9))[0])} {score:.2f}" for at, score in best]
        start = textwrap.shorten(" ".join(text.split()), _WIDTH - _LEFT - 2, placeholder="…")
        lines += [f"“{printable(start)}”", f"  {printable(', '.join(labels)) or '(no label)'}"]
        if len(lines) == 2 * _EXAMPLES:
            break
    return lines


def _wrapped(sentences: Sequence[str]) -> list[str]:
    """Wrap sentences to lines of the summary."""
    return [
        line
        for sentence in sentences
        for line in textwrap.wrap(
            sentence, _WIDTH - _LEFT, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    ]


def _shortened(name: str, most: int = 32) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
