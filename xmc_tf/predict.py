"""``python -m xmc_tf.predict``: predict labels with a model of ``xmc_tf.train``, on one rank or many."""

import argparse
from collections.abc import Sequence

from scipy.sparse import csr_matrix

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.files.outputs import Named, refuse_output
from xmc_tf.common.process import cli
from xmc_tf.data import (
    TextFile,
    load_features,
    load_label_choice,
    prediction_path,
)
from xmc_tf.jobs.predict import table_prediction
from xmc_tf.jobs.predict_flags import add_table_prediction
from xmc_tf.models.over_ranks import predict_over_ranks
from xmc_tf.models.prediction import PredictionOptions
from xmc_tf.models.results import give_result, load_true_labels
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import (
    ENSEMBLES,
    add_answers,
    add_batch_size,
    add_chunk,
    add_decisions,
    add_gpu,
    add_model,
    add_only_labels,
    add_predictions,
    add_queries,
    add_texts,
    add_threads,
    add_verbosity,
    add_without_effect,
    warn_without_effect,
)
from xmc_tf.pipeline.devices import choose_device
from xmc_tf.pipeline.inputs import Texts
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.serving.client import Client

_DESCRIPTION = """Predict labels with a model of xmc_tf.train.

Print names and scores of the best labels of a text:
    python -m xmc_tf.predict -m model -q "gradient of a sparse matrix"
Write label names and scores for a table, such as a CSV file:
    python -m xmc_tf.predict data.csv --column text -m model -o labels.csv
Write a matrix of scores for a file of texts, and print precision and recall:
    python -m xmc_tf.predict -m model -t X.tst.txt -o pred.npz -y Y.tst.npz
On several ranks:
    horovodrun -np 4 python -m xmc_tf.predict -m model -t X.tst.txt -o pred.npz
With a TensorFlow Serving that serves the exported model:
    python -m xmc_tf.predict --server http://localhost:8501 -t X.tst.txt -o pred.npz"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    out = cli.make_parser(
        "xmc_tf.predict",
        _DESCRIPTION,
        usage="%(prog)s [-m MODEL | --server URL] [TABLE | -t TEXTS | -q TEXT] [-x FEATURES] [options]",
    )
    add = out.add_argument
    model = out.add_mutually_exclusive_group(required=True)
    add_model(model)
    model.add_argument(
        "--server",
        metavar="URL",
        help="server of the exported model: http://host:8501 (REST) or grpc://host:8500, followed by /NAME",
    )
    source = out.add_mutually_exclusive_group(required=True)
    add_texts(source)
    add_queries(source)
    add_table_prediction(out, source)
    add(
        "-x", "--feat-path", nargs="+", metavar="FILE",
        help="features of the texts; required if the model was trained with -x",
    )  # fmt: skip
    add_predictions(out)
    add_answers(out)
    add_decisions(out)
    add_only_labels(out)
    add(
        "--ensemble-method", choices=ENSEMBLES,
        help="scores to use: the rankers' (concat-only), the label head's (transformer-only), or both (default: as "
        "trained)",
    )  # fmt: skip
    add_batch_size(out)
    add_chunk(out, default=10**6)
    add_gpu(out)
    add_threads(out, "-n")
    add_verbosity(out)
    add_without_effect(out, "predict")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Predict, and save or print the result."""
    arguments = parser().parse_args(argv)
    if arguments.table is not None:
        _predict_table(arguments)
        return
    arguments.save_pred_path = prediction_path(arguments.save_pred_path, folder_name="P.npz")
    if arguments.server is not None:
        refuse_output("-o", arguments.save_pred_path, _inputs(arguments))
        warn_without_effect(arguments, "predict")
        _by_server(arguments)
        return
    communicator = choose_communicator()
    # Rank 0 logs for all ranks.
    cli.set_verbosity(arguments.verbose_level if communicator.rank == 0 else 0)
    if communicator.rank == 0:
        warn_without_effect(arguments, "predict")
    announce_compiling()
    run_on_all_ranks(communicator, lambda: refuse_output("-o", arguments.save_pred_path, _inputs(arguments)))
    model = run_on_all_ranks(communicator, lambda: XTransformer.load(arguments.model_folder))
    if arguments.only_labels:
        run_on_all_ranks(communicator, lambda: _restrict(model, arguments.only_labels))
    texts, X, Y = run_on_all_ranks(communicator, lambda: _documents(arguments, model))
    if (arguments.ensemble_method or model.metadata.ensemble_method) == "concat-only":
        model.ranker.warn_if_out_of_reach(arguments.only_topk, arguments.beam_size)
    choose_device(communicator, arguments.use_gpu)
    if arguments.batch_size < 1:
        raise InputError("--batch-size must be at least 1", received=str(arguments.batch_size))
    options = PredictionOptions(
        beam_size=arguments.beam_size,
        only_topk=arguments.only_topk,
        post_processor=arguments.post_processor,
        ensemble_method=arguments.ensemble_method,
        max_pred_chunk=arguments.max_pred_chunk,
        batch_tokens=arguments.batch_size * model.metadata.truncate_length,
        threads=arguments.threads,
        **{name: getattr(arguments, name) for name in ("scores", "threshold", "min_precision")},
    )
    predicted = predict_over_ranks(model, texts, X, communicator, options)

    def give() -> None:
        assert predicted is not None  # on rank 0, where this runs
        give_result(predicted, model.names, arguments.save_pred_path, Y, arguments.layout)

    on_first_rank(communicator, give)


def _inputs(arguments: argparse.Namespace) -> dict[str, Named]:
    """The files and folders that are read, by flag."""
    return {
        "-m": arguments.model_folder, "-t": arguments.text_path, "-x": arguments.feat_path, "-y": arguments.label_path
    }  # fmt: skip


def _by_server(arguments: argparse.Namespace) -> None:
    """Ask a server, whose search options were set by the export."""
    cli.set_verbosity(arguments.verbose_level)
    fixed = {
        "-x": arguments.feat_path,
        "-b": arguments.beam_size,
        "-pp": arguments.post_processor,
        "--ensemble-method": arguments.ensemble_method,
        "--only-labels": arguments.only_labels,
        "--scores": arguments.scores,
        "--threshold": arguments.threshold,
        "--min-precision": arguments.min_precision,
    }
    if given := [flag for flag, value in fixed.items() if value is not None]:
        raise InputError(
            f"{', '.join(given)} cannot be used with --server",
            expected="-t or -q, -k, -o and -y: other options are fixed when the model is exported",
            fix="export the model again with xmc_tf.export, or predict with -m",
        )
    texts = arguments.query or TextFile(arguments.text_path).lines()
    names: dict[int, str] = {}
    predicted = Client(arguments.server).predict(texts, arguments.only_topk, arguments.batch_size, names)
    Y = load_true_labels(arguments.label_path, texts, predicted.shape[1])
    give_result(predicted, names, arguments.save_pred_path, Y, arguments.layout)


def _predict_table(arguments: argparse.Namespace) -> None:
    """Write the labels of the rows of a table."""
    communicator = choose_communicator()
    if arguments.server is not None or communicator.size > 1:
        raise InputError(
            "a table is labelled by one process, with -m",
            received="--server" if arguments.server is not None else f"{communicator.size} ranks",
            fix="start the command without a launcher; or use -t with a file of texts",
        )
    cli.set_verbosity(arguments.verbose_level)
    announce_compiling()
    model = XTransformer.load(arguments.model_folder)
    job = table_prediction(arguments, arguments.save_pred_path, model.metadata.columns)
    if arguments.only_labels:
        _restrict(model, arguments.only_labels)
    choose_device(communicator, arguments.use_gpu)

    def predict(texts: list[str], labels: int) -> csr_matrix:
        return model.predict(
            texts, beam_size=arguments.beam_size, only_topk=labels, post_processor=arguments.post_processor,
            ensemble_method=arguments.ensemble_method, threads=arguments.threads,
            batch_tokens=arguments.batch_size * model.metadata.truncate_length,
        )  # fmt: skip

    job.run(predict, model.names)


def _restrict(model: XTransformer, path: str) -> None:
    model.set_output_constraint(load_label_choice(path, model.names, model.nr_labels))


def _documents(arguments: argparse.Namespace, model: XTransformer) -> tuple[Texts, object, csr_matrix | None]:
    """Texts, features and true labels, as far as they are given."""
    texts: Texts = arguments.query or TextFile(arguments.text_path)
    X = load_features(arguments.feat_path) if arguments.feat_path else None
    return texts, X, load_true_labels(arguments.label_path, texts, model.nr_labels)


if __name__ == "__main__":
    cli.run(main)
