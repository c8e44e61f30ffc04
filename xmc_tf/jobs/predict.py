"""The prediction commands: for all kinds of documents and models, on one rank, on many, or through a server."""

import argparse
import dataclasses
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy.sparse import csr_matrix

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import share
from xmc_tf.common.process import cli
from xmc_tf.common.process.terminal import printable
from xmc_tf.data import (
    Features,
    TextFile,
    check_pair,
    check_prediction_input,
    check_validation_input,
    load_features,
    load_label_choice,
    load_matrix,
    prediction_path,
    save_matrix,
)
from xmc_tf.models.loading import load
from xmc_tf.models.results import Names, count_of, named, pieces, predict_over_ranks, rows_of, stacked
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import (
    DECISIONS,
    SEARCH,
    PredictionOptions,
    add_flags,
    add_prediction_options,
    add_without_effect,
    options_of_flags,
    warn_without_effect,
)
from xmc_tf.params.choices import TENSORFLOW
from xmc_tf.params.flags import FLAGS
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.store.files import atomic_file
from xmc_tf.store.outputs import MATRIX_OF_PREDICTIONS, PREDICTIONS, Named, check_output_path
from xmc_tf.tables.reading_flags import add_reading_options, refuse_without_table

if TYPE_CHECKING:
    from xmc_tf.models.model import Model

_LOG = logging.getLogger(__name__)
_BATCH_SIZE, _LAYOUT = 32, "table"  # defaults of flags
OPTIONS = (*SEARCH, *DECISIONS, "ensemble_method", "max_pred_chunk", "threads")  # those that have flags of their own


def predict_parser(module: str, description: str) -> cli.Parser:
    out = cli.make_parser(
        module, description,
        usage="%(prog)s [-m MODEL | --server URL] [TABLE | TEXT | -t TEXTS | -q TEXT …] [-x FEATURES] [options]",
    )  # fmt: skip
    model = out.add_mutually_exclusive_group(required=True)
    add_flags(model, "model_folder")
    model.add_argument(
        "--server", metavar="URL",
        help="server of the exported model: http://host:8501 (REST) or grpc://host:8500, followed by /NAME",
    )  # fmt: skip
    source = out.add_mutually_exclusive_group()
    add_flags(source, "text_path", "query")
    source.add_argument(
        "table", nargs="?", metavar="TABLE", help="table with a column of texts, such as a CSV file; or a text",
    )  # fmt: skip
    used = (
        f"{FLAGS['feat_path']['help']}. A linear model takes them instead of texts; an XR-Transformer trained with -x "
        "takes them in addition to texts"
    )
    add_flags(out, feat_path={"help": used, "also": ["--inst-path"]})
    reading = add_reading_options(out)
    reading.add_argument(
        "--keep", metavar="NAME,…", help="columns to copy to the output, or all (default: the column of identifiers)"
    )
    reading.add_argument(
        "--back-off", type=share, metavar="SHARE",
        help="for labels that are category paths, such as A > B > C: return only the deepest category that is right "
        "with at least this probability, such as 0.8",
    )  # fmt: skip
    add_flags(out, "save_pred_path", label_path={"help": "true labels, to print precision and recall"})
    add_flags(out, "layout")
    add_prediction_options(out, *OPTIONS)
    add_flags(out, "only_labels")
    out.add_argument(
        "-so", "--selected-output", metavar="FILE",
        help="matrix of documents × labels, .npz; only its nonzero entries are scored (linear models only)",
    )  # fmt: skip
    add_flags(out, "batch_size", "use_gpu", "force", "runtime", "verbose_level")
    add_without_effect(out, "predict")
    return out


def predict(arguments: cli.GivenFlags) -> None:
    """Predict labels, and save or print the result."""
    options = options_of_flags(arguments, *OPTIONS)
    _as_documents(arguments)
    _check_documents(arguments)
    if arguments.server is not None:
        _ask_server(arguments, options)
        return
    communicator = choose_communicator()
    # Rank 0 logs for all ranks.
    cli.set_verbosity(arguments.verbose_level if communicator.rank == 0 else 0)
    if communicator.rank == 0:
        warn_without_effect(arguments, "predict")
    announce_compiling()
    output = run_on_all_ranks(communicator, lambda: _checked_output(arguments))
    model = run_on_all_ranks(communicator, lambda: _model(arguments, options))
    options = _prepared(arguments, options, model, communicator)
    if arguments.table is not None:
        _predict_table(arguments, options, model, communicator)
        return
    documents, X = run_on_all_ranks(communicator, lambda: _documents(arguments, model))
    Y = run_on_all_ranks(communicator, lambda: _true_labels(arguments.label_path, documents, model.nr_labels))
    selected = run_on_all_ranks(communicator, lambda: _selected(arguments, documents))

    def predict_rows(rows: slice) -> csr_matrix:
        some = rows_of(documents, rows)
        if selected is not None:
            assert isinstance(model, XRLinear)  # others were refused
            return _score_selected(model, some, selected[rows], options)
        return model.predict(some, rows_of(X, rows), **vars(options))

    predicted = predict_over_ranks(predict_rows, count_of(documents), communicator)

    def give() -> None:
        assert predicted is not None  # on rank 0, where this runs
        if Y is not None and arguments.text_path and (trained := model.trained_documents) is not None:
            trained.warn_of(documents, arguments.text_path)
        _give(predicted, model.names, output, Y, arguments.layout)

    on_first_rank(communicator, give)


def _as_documents(arguments: argparse.Namespace) -> None:
    """Treat TABLE as a query if it is a text, and the file of -t as a table with one column if -o is a table."""
    a = arguments
    if a.table is not None and " " in a.table and not Path(a.table).exists():
        ending = Path(a.table).suffix
        if not ending or " " in ending:  # "new rows.csv" is a file that does not exist
            a.query, a.table = [a.table], None
    if a.text_path is not None and Path(a.save_pred_path or "").suffix.lower() in (".csv", ".tsv"):
        a.table, a.text_path, a.format, a.text_column = a.text_path, None, "lines", "text"


def _check_documents(arguments: cli.GivenFlags) -> None:
    """Raise an error if there are no documents, or if a flag does not apply to this kind of documents."""
    a = arguments
    if not (a.table or a.text_path or a.query or a.feat_path):
        raise InputError(
            "there are no documents", expected="a table, texts (-t FILE or -q TEXT), or features (-x)",
            fix="python -m xmc_tf.predict --help shows complete commands",
        )  # fmt: skip
    if a.table is not None:
        a.refuse(
            "feat_path", "label_path", "selected_output", "server", where="with a table",
            expected="-m, and -o for the labels of the table",
            fix="use texts (-t), or measure with xmc-tf evaluate -m MODEL TABLE",
        )  # fmt: skip
    else:
        refuse_without_table(a, "keep", "back_off")
    if a.label_path is None:
        a.refuse("layout", needs="true labels (-y): it shows precision and recall")
    if a.batch_size < 1:
        raise InputError("--batch-size must be at least 1", received=str(a.batch_size))


def _checked_output(arguments: argparse.Namespace) -> str | None:
    """Return the file to write, or None to print; raise an error if it would replace an input."""
    a = arguments
    output = a.save_pred_path if a.table is not None else prediction_path(a.save_pred_path, folder_name="P.npz")
    inputs: dict[str, Named] = {
        "TABLE": a.table, "-m": a.model_folder, "-t": a.text_path, "-x": a.feat_path, "-y": a.label_path,
        "-so": a.selected_output, "--only-labels": a.only_labels,
    }  # fmt: skip
    check_output_path("-o", output, inputs, PREDICTIONS, force=a.force)
    return output


def _model(arguments: argparse.Namespace, options: PredictionOptions) -> "Model":
    """Load the model; raise an error for flags that do not apply to this kind of model."""
    model, a = load(arguments.model_folder, runtime=arguments.runtime), arguments
    linear = isinstance(model, XRLinear)
    texts = bool(a.text_path or a.query)
    problems = {
        "--ensemble-method": linear and options.ensemble_method is not None,
        "--batch-size": linear and a.batch_size != _BATCH_SIZE,
        "--use-gpu false": linear and not a.use_gpu,
        "--runtime": linear and a.runtime != "auto",
        "-x together with texts": linear and texts and a.feat_path is not None,
        "-x without texts": not linear and not texts and a.feat_path is not None,
        "-so": not linear and a.selected_output is not None,
    }
    if wrong := [flag for flag, found in problems.items() if found]:
        kind = "a linear model" if linear else "an XR-Transformer"
        raise InputError(
            f"{wrong[0]} cannot be used with {a.model_folder}, which is {kind}",
            expected="texts or features, as in training" if linear else "texts (-t or -q), and -x as in training",
            fix=f"leave out {wrong[0].partition(' ')[0]}" if linear or texts else "add the texts with -t",
        )
    if isinstance(model, XRLinear) and a.table is not None and not model.reads_text:
        raise InputError(
            f"{a.model_folder} reads features, not texts", expected="a model that was trained on texts",
            fix="give the features of the documents with -x instead of a table",
        )  # fmt: skip
    if a.only_labels is not None:
        model.set_output_constraint(load_label_choice(a.only_labels, model.names, model.nr_labels))
    return model


def _prepared(
    arguments: argparse.Namespace, options: PredictionOptions, model: "Model", communicator: Communicator
) -> PredictionOptions:
    """Choose the device, warn if the search cannot find -k labels, and return the prediction options for this model."""
    if isinstance(model, XRLinear):
        if arguments.selected_output is None:
            added = model.nr_labels - model.ranker.nr_labels
            model.ranker.warn_if_out_of_reach(options.only_topk, options.beam_size, added)
        return options
    from xmc_tf.models.xtransformer import XTransformer
    from xmc_tf.pipeline.devices import choose_device

    assert isinstance(model, XTransformer)
    if (options.ensemble_method or model.metadata.ensemble_method) == "concat-only":
        added = model.nr_labels - model.ranker.nr_labels
        model.ranker.warn_if_out_of_reach(options.only_topk, options.beam_size, added)
    if model.runtime == TENSORFLOW:
        choose_device(communicator, arguments.use_gpu)
    return dataclasses.replace(options, batch_tokens=arguments.batch_size * model.metadata.truncate_length)


def _documents(arguments: argparse.Namespace, model: "Model") -> tuple[Any, Features | None]:
    """Return the documents (texts or features), and the additional features of texts."""
    X = None if arguments.feat_path is None else load_features(arguments.feat_path)
    if arguments.query:
        return arguments.query, X
    if arguments.text_path is not None:
        texts = TextFile(arguments.text_path)
        texts.check()
        return texts, X
    assert X is not None
    assert isinstance(model, XRLinear)
    check_prediction_input(X, model.ranker.nr_features, " and ".join(arguments.feat_path))
    return X, None


def _selected(arguments: cli.GivenFlags, documents: Any) -> csr_matrix | None:
    """Return the matrix of labels to score, or None to search for the best labels."""
    if arguments.selected_output is None:
        return None
    arguments.refuse(
        "only_labels", *DECISIONS, where="with -so, which returns the rankers' scores of all selected labels"
    )
    for flag, value in (("-k", arguments.only_topk), ("-b", arguments.beam_size)):
        if value is not None:  # PECOS accepts them too
            _LOG.warning("%s has no effect with -so: the scores of all selected labels are returned", flag)
    selected = csr_matrix(load_matrix(arguments.selected_output, name="selected outputs"))
    check_pair(documents, selected, "the documents", arguments.selected_output)
    return selected


def _score_selected(model: XRLinear, documents: Any, selected: csr_matrix, options: PredictionOptions) -> csr_matrix:
    parts = []
    for some, labels in pieces(documents, selected, options.max_pred_chunk):
        X = some if isinstance(some, Features) else model.features(some, options.threads)
        parts.append(model.ranker.predict_selected(X, labels, post_processor=options.post_processor))
    return stacked(parts, model.nr_labels)


def _predict_table(
    arguments: argparse.Namespace, options: PredictionOptions, model: "Model", communicator: Communicator
) -> None:
    from xmc_tf.jobs.table_prediction import label_table  # it loads the readers of tables, which few need

    if communicator.size > 1:
        raise InputError(
            "the labels of a table can be predicted by one process only", received=f"{communicator.size} ranks",
            fix="start the command without a launcher; or use -t with a file of texts",
        )  # fmt: skip

    def predict_texts(texts: list[str], labels: int) -> csr_matrix:
        return model.predict(texts, **vars(dataclasses.replace(options, only_topk=labels, quiet=True)))

    label_table(arguments, model.metadata.columns, predict_texts, model.names)


def _ask_server(arguments: cli.GivenFlags, options: PredictionOptions) -> None:
    """Request predictions from a server, whose search options were fixed at export."""
    from xmc_tf.serving.client import Client

    cli.set_verbosity(arguments.verbose_level)
    output = _checked_output(arguments)
    warn_without_effect(arguments, "predict")
    fixed = {*OPTIONS, "feat_path", "selected_output", "only_labels", "use_gpu", "runtime"} - {"only_topk"}
    arguments.refuse(
        *sorted(fixed), where="with --server", fix="export the model again with xmc_tf.export, or predict with -m",
        expected="-t or -q, -k, -o and -y: other options are fixed when the model is exported",
    )  # fmt: skip
    texts = arguments.query or TextFile(arguments.text_path).lines()
    names: dict[int, str] = {}
    predicted = Client(arguments.server).predict(texts, options.only_topk, arguments.batch_size, names)
    Y = _true_labels(arguments.label_path, texts, predicted.shape[1])
    _give(predicted, names, output, Y, arguments.layout)


def _true_labels(path: str | None, documents: Any, nr_labels: int) -> csr_matrix | None:
    """Read the true labels of the documents; None if there is no file."""
    if path is None:
        return None
    Y = load_matrix(path, name="labels")
    check_validation_input(Y, nr_labels, path)
    check_pair(documents, Y, "the documents", path)
    return csr_matrix(Y)


def _give(predicted: csr_matrix, names: Names, path: str | None, Y: csr_matrix | None, layout: str) -> None:
    """Save predictions if ``path`` is set, print metrics if ``Y`` is set, and print labels if neither is set."""
    if path is not None:
        _save(path, predicted, names)
    elif Y is None:
        for labels in named(predicted, names):
            lines = [f"{score:9.4f}  {printable(name)}" for name, score in labels]
            print("\n".join(lines) or "      (no label)", end="\n\n")
    if Y is not None:
        from xmc_tf.metrics import precision_and_recall  # a query measures nothing

        print(precision_and_recall(predicted, Y, layout))


def _save(path: str, predicted: csr_matrix, names: Names) -> None:
    if path.endswith(".jsonl"):
        with atomic_file(path) as part, part.open("w", encoding="utf-8") as file:
            for labels in named(predicted, names):
                content = {"labels": [name for name, _ in labels], "scores": [round(score, 6) for _, score in labels]}
                file.write(json.dumps(content, ensure_ascii=False) + "\n")
    else:
        save_matrix(path, predicted, any_name=True, mark=MATRIX_OF_PREDICTIONS)
    _LOG.info("predictions: %s", path)
