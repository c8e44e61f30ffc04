"""``python -m xmc_tf.linear.predict``: predict labels of texts or features."""

import argparse
from collections.abc import Sequence
from typing import Any

from scipy.sparse import csr_matrix, vstack

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.files.outputs import refuse_output
from xmc_tf.common.process import cli
from xmc_tf.data import (
    Features,
    TextFile,
    check_pair,
    check_prediction_input,
    load_features,
    load_label_choice,
    load_matrix,
    prediction_path,
)
from xmc_tf.jobs.predict_flags import add_table_prediction
from xmc_tf.models.results import give_result, load_true_labels
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import (
    add_answers,
    add_chunk,
    add_decisions,
    add_model,
    add_only_labels,
    add_predictions,
    add_queries,
    add_texts,
    add_threads,
    add_verbosity,
)

_DESCRIPTION = """Predict labels with a model of xmc_tf.linear.train or of PECOS's XR-Linear.

Print names and scores of the best labels of a text:
    python -m xmc_tf.linear.predict -m model -q "gradient of a sparse matrix"
Write label names and scores for a table, such as a CSV file:
    python -m xmc_tf.linear.predict data.csv --column text -m model -o labels.csv
Write a matrix of scores for a file of texts or of features:
    python -m xmc_tf.linear.predict -m model -t X.tst.txt -o pred.npz
    python -m xmc_tf.linear.predict -m model -x X.tst.npz -o pred.npz -y Y.tst.npz"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    out = cli.make_parser(
        "xmc_tf.linear.predict",
        _DESCRIPTION,
        usage="%(prog)s -m MODEL [TABLE | -t TEXTS | -x FEATURES | -q TEXT] [options]",
    )
    add_model(out, required=True)
    source = out.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "-x",
        "--inst-path",
        nargs="+",
        metavar="FILE",
        help="features, .npz or .npy; two files, sparse then dense, are concatenated",
    )
    add_texts(source)
    add_queries(source)
    add_table_prediction(out, source)
    add_predictions(out)
    add_answers(out)
    add_decisions(out)
    add_only_labels(out)
    out.add_argument(
        "-so",
        "--selected-output",
        metavar="FILE",
        help="matrix of documents × labels, .npz; only its nonzero entries are scored",
    )
    add_chunk(out, "-B", default=10_000_000)
    add_threads(out, "-n")
    add_verbosity(out)
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Predict, and save or print the result."""
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    announce_compiling()
    if arguments.max_pred_chunk < 1:
        raise InputError("-B must be at least 1", received=str(arguments.max_pred_chunk))
    if arguments.table is not None:
        _predict_table(arguments)
        return
    arguments.save_pred_path = prediction_path(arguments.save_pred_path)
    inputs = {
        "-m": arguments.model_folder, "-x": arguments.inst_path, "-t": arguments.text_path,
        "-y": arguments.label_path, "-so": arguments.selected_output,
    }  # fmt: skip
    refuse_output("-o", arguments.save_pred_path, inputs)
    model = XRLinear.load(arguments.model_folder)
    if arguments.only_labels:
        model.set_output_constraint(load_label_choice(arguments.only_labels, model.names, model.nr_labels))
    if not arguments.selected_output:
        model.ranker.warn_if_out_of_reach(arguments.only_topk, arguments.beam_size)
    documents = _documents(arguments, model)
    Y = load_true_labels(arguments.label_path, documents, model.nr_labels)
    predicted = _predict(arguments, model, documents)
    give_result(predicted, model.names, arguments.save_pred_path, Y, arguments.layout)


def _predict_table(arguments: argparse.Namespace) -> None:
    """Write the labels of the rows of a table."""
    from xmc_tf.jobs.predict import table_prediction  # it loads the readers of tables, which a query does not need

    model = XRLinear.load(arguments.model_folder)
    job = table_prediction(arguments, arguments.save_pred_path, model.metadata.columns)
    if not model.reads_text:
        raise InputError(
            f"{arguments.model_folder} reads features, not texts", expected="a model that was trained on texts",
            fix="give the features of the documents with -x",
        )  # fmt: skip
    if arguments.only_labels:
        chosen = load_label_choice(arguments.only_labels, model.names, model.nr_labels)
        model.set_output_constraint(chosen)

    def predict(texts: list[str], labels: int) -> csr_matrix:
        return model.predict(texts, only_topk=labels, **_options(arguments), quiet=True)

    job.run(predict, model.names)


def _documents(arguments: argparse.Namespace, model: XRLinear) -> Any:
    if arguments.query:
        return arguments.query
    if arguments.text_path:
        texts = TextFile(arguments.text_path)
        texts.check()
        return texts
    X = load_features(arguments.inst_path)
    check_prediction_input(X, model.ranker.nr_features, " and ".join(arguments.inst_path))
    return X


def _predict(arguments: argparse.Namespace, model: XRLinear, documents: Any) -> csr_matrix:
    """Predict in chunks, so that memory does not grow with the number of documents."""
    selected = None
    if arguments.selected_output:
        selected = csr_matrix(load_matrix(arguments.selected_output, name="selected outputs"))
        check_pair(documents, selected, "the documents", arguments.selected_output)
    count = documents.nr_rows if isinstance(documents, Features) else len(documents)
    parts = []
    for begin in range(0, count, arguments.max_pred_chunk):
        end = min(begin + arguments.max_pred_chunk, count)
        some = _rows(documents, begin, end)
        if selected is not None:
            X = some if isinstance(some, Features) else model.features(some, threads=arguments.threads)
            parts.append(model.ranker.predict_selected(X, selected[begin:end], post_processor=arguments.post_processor))
            continue
        parts.append(model.predict(some, only_topk=arguments.only_topk, **_options(arguments)))
    return parts[0] if len(parts) == 1 else vstack(parts, format="csr")


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("beam_size", "post_processor", "scores", "threshold", "min_precision", "threads")
    return {name: getattr(arguments, name) for name in names}


def _rows(documents: Any, begin: int, end: int) -> Any:
    """Return some of the documents: features or texts."""
    if isinstance(documents, Features):
        whole = begin == 0 and end == documents.nr_rows
        return documents if whole else documents.rows(slice(begin, end))
    if isinstance(documents, TextFile):
        return documents if (begin, end) == (0, len(documents)) else documents.lines(begin, end)
    return documents[begin:end]


if __name__ == "__main__":
    cli.run(main)
