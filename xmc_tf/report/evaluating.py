"""The command that evaluates predictions, run as ``xmc_tf.evaluate`` or ``xmc_tf.linear.evaluate``."""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.common.process.terminal import printable_json
from xmc_tf.common.regular import existing_file
from xmc_tf.data import TextFile, load_matrix, load_names
from xmc_tf.data.vocabularies import LabelHierarchy, load_hierarchy
from xmc_tf.metrics.category_paths import level_sentence, level_shares
from xmc_tf.metrics.ensemble import ENSEMBLES, ensemble
from xmc_tf.metrics.evaluation import PECOS_TOPK, load_prediction, pecos_lines
from xmc_tf.metrics.measures import check_ks, check_shapes
from xmc_tf.metrics.ranking import as_truth
from xmc_tf.metrics.single_label import is_single_label, measure_single_label
from xmc_tf.models.incremental.training_data import ALL, ROWS
from xmc_tf.params import add_flags
from xmc_tf.report.inputs import MODEL_LABELS, ReportInputs
from xmc_tf.report.writing import refuse_report, write_report
from xmc_tf.tables.label_forms import LISTS, LabelData
from xmc_tf.tables.reading_flags import (
    add_label_options,
    add_reading_options,
    labelled_columns,
    refuse_without_table,
    source_options,
)

if TYPE_CHECKING:
    from xmc_tf.models.model import Model

LabelledRows: TypeAlias = tuple[list[str], list[list[str]], list[str]]
_MAX_CUT_OFFS = 10_000  # maximum number of cut-offs of one table


def evaluation_parser(module: str, description: str, epilog: str, layout: str) -> cli.Parser:
    parser = cli.make_parser(module, description, epilog=epilog)
    add = parser.add_argument
    add("table", nargs="?", metavar="TABLE", help="table of texts and labels that a model (-m) is measured on")
    add("-y", "--truth-path", metavar="PATH", help="true labels, documents × labels")
    add("-p", "--pred-path", nargs="+", default=[], metavar="PATH", help="predictions, of the same shape")
    add(
        "-k", "--topk", "--only-topk", dest="topk", metavar="K",
        help='values of k: a list such as 1,3,5, or one number N for 1 to N ("5," for 5 only) '
        f"(default: 1,3,5; with --layout pecos {PECOS_TOPK}, which stands for 1 to {PECOS_TOPK})",
    )  # fmt: skip
    add_flags(parser, layout={"default": layout})
    add("--json", action="store_true", help="print one JSON object; values are from 0 to 1")
    add("--train-labels", metavar="PATH", help="training labels, for propensities and label frequencies")
    add("--propensity-a", type=float, default=0.55, metavar="A", help="parameter A of the propensity model")
    add("--propensity-b", type=float, default=1.5, metavar="B", help="parameter B of the propensity model")
    add(
        "--buckets", default="10,50", metavar="BOUNDS",
        help="upper bounds of the label groups by frequency, counted in --train-labels if given, else in the true "
        'labels; "none": no groups',
    )  # fmt: skip
    add(
        "--ensemble", nargs="+", default=[], choices=list(ENSEMBLES),
        help="also measure ensembles of the predictions, combined in these ways",
    )  # fmt: skip
    add("--tags", nargs="+", metavar="NAME", help="names of the predictions, in the order of -p")
    add("--labels", metavar="PATH", help="file of label names, one per line")
    add_flags(parser, "force")
    add(
        "--report", metavar="DIR",
        help="write DIR/report.html: metrics, thresholds, calibration, labels, confusions; also as JSON and CSV",
    )  # fmt: skip
    add("--title", default="Evaluation of predictions", metavar="TEXT", help="title of the report")
    add_flags(parser, "text_path", "model_folder")
    add(
        "--vocabulary", metavar="FILE",
        help="SKOS vocabulary (.ttl, .rdf, .xml, .nt) with broader terms of the labels, for near misses "
        "(default: the terms that the model knows)",
    )  # fmt: skip
    add("--language", metavar="TAG", help="language of the names in --vocabulary, such as en")
    group = add_reading_options(parser)
    add_label_options(group)
    group.add_argument(
        "--rows", choices=ROWS,
        help="documents of TABLE to measure on: those that the model was not trained on, such as the test rows of its "
        "own table (unseen, the default), or all",
    )  # fmt: skip
    return parser


def evaluate(args: cli.GivenFlags) -> None:
    pecos = args.layout == "pecos" and not args.json
    ks = _cut_offs(args.topk or (str(PECOS_TOPK) if pecos else "1,3,5"))
    if pecos and ks != tuple(range(1, len(ks) + 1)):
        raise InputError(
            f"-k {args.topk} does not fit --layout pecos",
            expected="one number: PECOS prints precision and recall at 1 to k",
            received=args.topk,
            fix=f"use -k {ks[-1]}, or --layout table",
        )
    bounds = [] if args.buckets == "none" else _numbers(args.buckets, "--buckets")
    shared = {
        "bounds": bounds, "ks": ks if args.topk or args.json else (),
        "propensities": (args.propensity_a, args.propensity_b),
    }  # fmt: skip
    inputs = _of_table(args, ks[-1], shared) if args.table else _of_files(args, shared)
    single = is_single_label(inputs.truth)
    if pecos:
        for name, predicted in inputs.systems.items():
            print((f"{name}:\n" if inputs.others else "") + pecos_lines(predicted, inputs.truth, ks[-1], name))
    elif args.json:
        print(printable_json(_as_json(inputs, single)))
    elif single and args.topk is None:
        print(_single_label_text(inputs))
    else:
        print(inputs.compared().to_text(shutil.get_terminal_size((110, 24)).columns))
    if not pecos and not args.json:
        for name, predicted in inputs.systems.items():
            if levels := level_shares(inputs.names, inputs.truth, predicted):
                print("\n" + (f"{name}: " if inputs.others else "") + level_sentence(levels))
    if args.report:
        path = write_report(inputs, args.report)
        if not args.json:
            print(f"\nreport: {path}")


def _as_json(inputs: ReportInputs, single: bool) -> dict[str, Any]:
    content = inputs.compared().to_json()
    for system, predicted in zip(content["systems"], inputs.systems.values(), strict=True):
        if single:
            system |= measure_single_label(inputs.truth, predicted).to_json()
        if levels := level_shares(inputs.names, inputs.truth, predicted):
            system["levels"] = levels
    return content


def _single_label_text(inputs: ReportInputs) -> str:
    blocks = [f"{inputs.truth.shape[0]:,} documents with one label each; -k 1,3,5 measures the first 5 labels"]
    for name, predicted in inputs.systems.items():
        lines = measure_single_label(inputs.truth, predicted).lines(inputs.names)
        blocks.append("\n".join([f"{name}:", *lines] if inputs.others else lines))
    return "\n\n".join(blocks)


def _of_files(args: cli.GivenFlags, shared: dict[str, Any]) -> ReportInputs:
    refuse_without_table(args, "label_column", "label_separator", "rows")
    if missing := [flag for flag, value in (("-y", args.truth_path), ("-p", args.pred_path)) if not value]:
        raise InputError(
            f"{' and '.join(missing)} missing",
            expected="a table of texts and labels and a model, or true labels and predictions",
            fix="xmc-tf evaluate -m MODEL TABLE, or xmc-tf evaluate -y TRUTH.npz -p PREDICTION.npz",
        )
    names = args.tags or short_names(args.pred_path)
    if len(names) != len(args.pred_path):
        raise InputError(
            "--tags does not match the predictions", expected=f"{len(args.pred_path)} names", received=f"{len(names)}"
        )
    inputs = {
        "-y": args.truth_path, "-p": args.pred_path, "--train-labels": args.train_labels, "--labels": args.labels,
        "-t": args.text_path, "-m": args.model_folder, "--vocabulary": args.vocabulary,
    }  # fmt: skip
    if args.report:
        refuse_report("--report", args.report, inputs, force=args.force)
    elif unused := next((flag for flag in ("-t", "-m") if inputs[flag]), None):
        raise InputError(f"{unused} is only used for a report", expected="--report DIR too", received=f"only {unused}")
    truth = as_truth(load_matrix(args.truth_path, name="the truth"), args.truth_path)
    label_names = load_names(args.labels, truth.shape[1]) if args.labels else None
    training = None
    if args.train_labels:
        training = as_truth(load_matrix(args.train_labels, name="the training labels"), args.train_labels)
        if training.shape[1] != truth.shape[1]:
            raise InputError(
                f"{args.train_labels} has a different number of labels than the true labels",
                expected=f"{truth.shape[1]:,} columns, as {args.truth_path} has",
                received=f"{training.shape[1]:,}",
            )
    matrices = [load_prediction(path) for path in args.pred_path]
    for path, matrix in zip(args.pred_path, matrices, strict=True):
        check_shapes(truth, matrix, path)
    systems = dict(zip(names, matrices, strict=True))
    if len(systems) < len(names):
        raise InputError("two predictions have the same name", expected="unique names", fix="use --tags")
    systems |= {f"ensemble {way}": ensemble(way, matrices) for way in args.ensemble}
    model = None
    if args.model_folder:
        from xmc_tf.models.loading import load

        model = load(args.model_folder)
        label_names = label_names or model.names
        if args.text_path and (trained := model.trained_documents) is not None:
            trained.warn_of(TextFile(args.text_path), args.text_path)
    (name, predicted), *others = systems.items()
    return ReportInputs(
        args.title, truth, predicted, label_names, TextFile(args.text_path) if args.text_path else None,
        training_labels=training, model=model, others=dict(others), name=name, hierarchy=_hierarchy(args, label_names),
        **shared,
    )  # fmt: skip


def _of_table(args: cli.GivenFlags, k: int, shared: dict[str, Any]) -> ReportInputs:
    """Return the report inputs for a labelled table. Labels that are unknown to the model count as misses."""
    from xmc_tf.models.documents import labelled_rows
    from xmc_tf.models.labels import matrix_of_names, true_labels, unknown_labels
    from xmc_tf.models.loading import load
    from xmc_tf.models.results import over_all_labels

    args.refuse("truth_path", "pred_path", "text_path", "train_labels", "labels", "ensemble", where="with a table")
    if not args.model_folder:
        raise InputError("-m is missing", expected="the model that is measured on the table", fix="add -m model")
    if len(args.tags or ()) > 1:
        raise InputError("--tags does not match the model", expected="1 name", received=f"{len(args.tags)}")
    if args.report:
        inputs = {"TABLE": args.table, "-m": args.model_folder, "--vocabulary": args.vocabulary}
        refuse_report("--report", args.report, inputs, force=args.force)
    announce_compiling()
    model = load(args.model_folder)
    options = labelled_columns(args, model.metadata.columns)
    rows = labelled_rows(args.table, source_options(args), options, "measured")
    texts, labels, documents = _unseen(args, model, rows)
    own = LabelData(LISTS, labels)
    if model.names is None:
        names, truth = None, true_labels(own, texts, model.metadata.nr_labels, None)
    else:
        names = [*model.names, *unknown_labels(own, model.names)]
        truth = matrix_of_names(own.names, names, "the model's label names")
    hierarchy = _hierarchy(args, names)
    predicted = over_all_labels(model.predict(texts, only_topk=max(k, MODEL_LABELS)), truth.shape[1], None)
    name = (args.tags or [Path(args.model_folder).name or "model"])[0]
    return ReportInputs(
        args.title, truth, predicted, names, texts, documents, model=model, name=name, hierarchy=hierarchy, **shared
    )  # fmt: skip


def _unseen(args: argparse.Namespace, model: "Model", rows: LabelledRows) -> LabelledRows:
    """Return the documents that were not used in training; all with ``--rows all``, or if the model has no record."""
    trained = model.trained_documents
    unseen = None if args.rows == ALL or trained is None else trained.unseen(rows[0], args.table, "--rows all")
    if unseen is None:
        return rows
    texts, labels, documents = rows
    return [texts[row] for row in unseen], [labels[row] for row in unseen], [documents[row] for row in unseen]


def _hierarchy(args: argparse.Namespace, names: Sequence[str] | None) -> LabelHierarchy | None:
    vocabulary, language = args.vocabulary, args.language
    if vocabulary is None and language is None:
        return None
    if vocabulary is None or language is None or names is None:
        raise InputError(
            "near misses cannot be measured",
            expected="--vocabulary, --language, and label names (of the model or in --labels)",
            received="labels without names" if vocabulary and language else
            f"only {'--language' if vocabulary is None else '--vocabulary'}",
            fix="leave out --vocabulary and --language, or give all of them",
        )  # fmt: skip
    return load_hierarchy(names, existing_file(vocabulary, "vocabulary"), language)


def short_names(paths: Sequence[str]) -> list[str]:
    """Return file names, preceded by as many parent folders as it takes to make them unique."""
    parts = [Path(path).parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def _cut_offs(text: str) -> tuple[int, ...]:
    numbers = check_ks(_numbers(text, "-k/--topk"))
    if "," in text:
        return numbers
    if numbers[0] > _MAX_CUT_OFFS:
        raise InputError(
            "-k/--topk is out of range",
            expected=f"at most {_MAX_CUT_OFFS:,} to measure 1 to k; '{numbers[0]},' measures this k only",
            received=f"{numbers[0]:,}",
        )
    return tuple(range(1, numbers[0] + 1))


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [whole(part) for part in text.split(",") if part.strip()]
    except argparse.ArgumentTypeError:
        received = text if len(text) <= 80 else f"{text[:77]}..."
        raise InputError(f"{option} is invalid", expected="whole numbers, such as 1,3,5", received=received) from None
