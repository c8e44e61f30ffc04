"""The flags of prediction, for all models and both spellings of the command."""

import argparse

from xmc_tf.common.numbers import share
from xmc_tf.common.process import cli
from xmc_tf.params import (
    DECISIONS,
    SEARCH,
    add_batch_size,
    add_force,
    add_gpu,
    add_model,
    add_only_labels,
    add_prediction_options,
    add_predictions,
    add_queries,
    add_runtime,
    add_texts,
    add_verbosity,
    add_without_effect,
)
from xmc_tf.tables.reading_flags import add_reading_options

OPTIONS = (*SEARCH, *DECISIONS, "ensemble_method", "max_pred_chunk", "threads")
"""The options of a prediction that have flags of their own."""


def predict_parser(module: str, description: str) -> argparse.ArgumentParser:
    out = cli.make_parser(
        module,
        description,
        usage="%(prog)s [-m MODEL | --server URL] [TABLE | TEXT | -t TEXTS | -q TEXT …] [-x FEATURES] [options]",
    )
    model = out.add_mutually_exclusive_group(required=True)
    add_model(model)
    model.add_argument(
        "--server",
        metavar="URL",
        help="server of the exported model: http://host:8501 (REST) or grpc://host:8500, followed by /NAME",
    )
    source = out.add_mutually_exclusive_group()
    add_texts(source)
    add_queries(source)
    source.add_argument(
        "table",
        nargs="?",
        metavar="TABLE",
        help="table with a column of texts, such as a CSV file; or a text",
    )
    out.add_argument(
        "-x", "--feat-path", "--inst-path", nargs="+", metavar="FILE",
        help="features, .npz or .npy; two files, sparse then dense, are concatenated. They stand alone for linear "
        "rankers, and beside the texts for an XR-Transformer that was trained with -x",
    )  # fmt: skip
    _add_reading(out)
    add_predictions(out)
    add_prediction_options(out, *OPTIONS)
    add_only_labels(out)
    out.add_argument(
        "-so", "--selected-output", metavar="FILE",
        help="matrix of documents × labels, .npz; only its nonzero entries are scored, by linear rankers",
    )  # fmt: skip
    add_batch_size(out)
    add_gpu(out)
    add_force(out)
    add_runtime(out)
    add_verbosity(out)
    add_without_effect(out, "predict")
    return out


def _add_reading(parser: argparse.ArgumentParser) -> None:
    group = add_reading_options(parser)
    group.add_argument(
        "--keep", metavar="NAME,…", help="columns to copy to the output, or all (default: a column named id)"
    )
    group.add_argument(
        "--back-off", type=share, metavar="SHARE",
        help="of labels that are category paths, such as A > B > C: name the deepest category that is right with this "
        "probability, such as 0.8, instead of several labels",
    )  # fmt: skip
