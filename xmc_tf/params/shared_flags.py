"""Flags that several commands share, so that they mean the same everywhere."""

import argparse

from xmc_tf.common.numbers import whole
from xmc_tf.params.choices import POST_PROCESSORS


def add_answers(parser: argparse.ArgumentParser) -> None:
    """Add the flags that override the prediction options of a model."""
    own = "(default: as trained)"
    parser.add_argument("-k", "--only-topk", type=whole, metavar="INT", help=f"number of labels per document {own}")
    parser.add_argument(
        "-b",
        "--beam-size",
        type=whole,
        metavar="INT",
        help=f"number of nodes kept at each level above the labels; larger is slower and more exact {own}",
    )
    parser.add_argument(
        "-pp", "--post-processor", choices=POST_PROCESSORS, help=f"function applied to the scores of each level {own}"
    )


def add_only_labels(parser: argparse.ArgumentParser) -> None:
    """Add the flag that restricts the labels a command predicts."""
    parser.add_argument(
        "--only-labels", metavar="FILE", help="predict only these labels: names or numbers (from 0), one per line"
    )


def add_layout(parser: argparse.ArgumentParser | argparse._ArgumentGroup, default: str = "table") -> None:
    """Add the flag for the layout of precision and recall."""
    parser.add_argument(
        "--layout", choices=("table", "pecos"), default=default,
        help="layout of precision and recall: a table, or the lines that PECOS prints (prec = ..., recall = ...; "
        "k = 1 to 10), for scripts that parse them",
    )  # fmt: skip


def add_verbosity(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the flag for the level of log messages."""
    parser.add_argument(
        "--verbose-level", type=whole, default=1, choices=range(4), metavar="0-3",
        help="log level; 0: warnings, 1: progress, 2 and 3: details",
    )  # fmt: skip
