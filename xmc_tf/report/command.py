"""``python -m xmc_tf.report.command``: write a report on models, measured on one split of a data set."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, vstack

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.process import cli
from xmc_tf.models.loading import load
from xmc_tf.models.model import Model
from xmc_tf.models.results import over_all_labels
from xmc_tf.params import PredictionOptions, TfidfParams, add_flags, add_prediction_options
from xmc_tf.report.inputs import MODEL_LABELS, ReportInputs, curves_of_model
from xmc_tf.report.writing import refuse_report, write_report
from xmc_tf.tables.splits import SPLITS, TEST, TRAIN, VALIDATION
from xmc_tf.tables.store import TableStore

_DESCRIPTION = """Write a report on one or several models: one HTML page, and its data as JSON and CSV.

    python -m xmc_tf.report.command data.sqlite -m model -o report
    python -m xmc_tf.report.command data.sqlite -m small large -o report

The documents are in a data set that xmc-tf prepare or xmc-tf train has made from a table. Labels of model and data set
are matched by name; a label that the model does not know counts as not found. For predictions in files, use
python -m xmc_tf.evaluate --report."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.report.command", _DESCRIPTION)
    out.add_argument("data", metavar="DATA", help="data set: a database made by xmc-tf prepare or xmc-tf train")
    add = out.add_argument
    more = {"required": True, "nargs": "+", "help": "model folders, the main model first"}
    add_flags(out, model_folder=more)
    add("-o", "--output", default="report", metavar="DIR", help="folder for the report")
    add("--split", default=TEST, metavar="NAME", help=f"documents to report on: {', '.join(SPLITS)}")
    add("--title", metavar="TEXT", help="title of the report (default: names of the model and the data set)")
    add_flags(out, of=PredictionOptions, only_topk={"default": MODEL_LABELS})
    add_prediction_options(out, "beam_size")
    add_flags(out, "force", "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    announce_compiling()
    for flag, value in (("-k", arguments.only_topk), ("-b", arguments.beam_size)):
        if value is not None and value < 1:
            raise InputError(f"{flag} is out of range", expected="a whole number of at least 1", received=str(value))
    refuse_report("-o", arguments.output, {"DATA": arguments.data, "-m": arguments.model_folder}, force=arguments.force)
    store = TableStore.open(arguments.data)
    split = arguments.split
    if not store.count(split):
        raise InputError(f"{arguments.data} has no documents in the split {split!r}", expected="at least one document")
    inputs = _inputs(arguments, store)
    # A model card must not measure documents that may have been used in training.
    trained = None if inputs.model is None else inputs.model.trained_documents
    seen = trained is not None and trained.include(store.texts(split)).any()
    card = None if split != TEST or seen else arguments.model_folder[0]
    path = write_report(inputs, arguments.output, model_folder=card, data=store.path.name)
    print(path)


def _inputs(arguments: argparse.Namespace, store: TableStore) -> ReportInputs:
    """Return the inputs of the report. Their columns are the labels of the data set and of all models."""
    split, texts, names = arguments.split, store.texts(arguments.split), store.names
    folders = [Path(folder) for folder in arguments.model_folder]
    column = {name: number for number, name in enumerate(names)}
    found: list[tuple[csr_matrix, np.ndarray]] = []
    first: Model | None = None
    for folder in folders:
        model = load(folder)
        first = first or model
        if (trained := model.trained_documents) is not None:
            trained.warn_of(texts, f"{folder}, {split} documents of {store.path.name}")
        to = np.array([column.setdefault(name, len(column)) for name in _names_of(model, folder, names)])
        found.append((model.predict(texts, only_topk=arguments.only_topk, beam_size=arguments.beam_size), to))
    shape = (len(texts), len(column))
    predictions = [csr_matrix((one.data, to[one.indices], one.indptr), shape) for one, to in found]
    header = folders[0] / "features" / "params.json"
    used = [TRAIN] if split != TEST else [TRAIN, VALIDATION]
    titles = _titles(folders)
    training = vstack([store.labels(one) for one in used], format="csr")
    settings = {
        "model": folders[0], "data set": store.path, "split": split, "labels per document": arguments.only_topk,
    }  # fmt: skip
    if header.exists():
        settings["features"] = TfidfParams.from_json(read_json(header).get("params", {})).description
    return ReportInputs(
        arguments.title or f"{folders[0].name or 'model'}: {split} documents of {store.path.name}",
        over_all_labels(store.labels(split), len(column), None), predictions[0], names=list(column), texts=texts,
        document_names=store.document_names(split), model=first, name=titles[0],
        training_labels=None if split == TRAIN else over_all_labels(training, len(column), None),
        others=dict(zip(titles[1:], predictions[1:], strict=True)), curves=curves_of_model(store, folders[0]),
        settings=settings,
    )  # fmt: skip


def _names_of(model: Model, folder: Path, names: Sequence[str]) -> Sequence[str]:
    """Return the label names of a model, or the names of the data set if the model has none."""
    if model.names:
        return model.names
    if model.tree.nr_labels != len(names):
        raise InputError(
            f"{folder} has no label names, and not as many labels as the data set",
            expected=f"{len(names):,} labels",
            received=f"{model.tree.nr_labels:,}",
            fix="train the model with --labels",
        )
    return names


def _titles(folders: Sequence[Path]) -> list[str]:
    """Return a unique name for each model."""
    names = [folder.name or str(folder) for folder in folders]
    return [
        name if names.count(name) == 1 else f"{folder} ({number})"
        for number, (name, folder) in enumerate(zip(names, folders, strict=True), 1)
    ]


if __name__ == "__main__":
    cli.run(main)
