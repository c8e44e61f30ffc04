"""Flags that several commands have: written once, so that they mean the same everywhere."""

import argparse

from xmc_tf.common.numbers import whole
from xmc_tf.params.choices import POST_PROCESSORS


def add_answers(parser: argparse.ArgumentParser) -> None:
    """How a model answers, where the user does not want it as the model says itself."""
    own = "the model's own where not given"
    parser.add_argument("-k", "--only-topk", type=whole, metavar="INT", help=f"labels a document; {own}")
    parser.add_argument(
        "-b", "--beam-size", type=whole, metavar="INT", help=f"nodes kept at each level above the labels; {own}"
    )
    parser.add_argument("-pp", "--post-processor", choices=POST_PROCESSORS, help=f"of the scores; {own}")


def add_only_labels(parser: argparse.ArgumentParser) -> None:
    """Which labels a command may predict."""
    parser.add_argument(
        "--only-labels", metavar="FILE", help="predict only these labels: names or numbers (from 0), one per line"
    )


def add_layout(parser: argparse.ArgumentParser | argparse._ArgumentGroup, default: str = "table") -> None:
    """How precision and recall are printed."""
    parser.add_argument(
        "--layout", choices=("table", "pecos"), default=default,
        help="how precision and recall are printed: as a table, or in PECOS's lines (prec = ..., recall = ...; k = 1 "
        "to 10), which scripts may parse",
    )  # fmt: skip


def add_verbosity(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """How much is said while the command runs."""
    parser.add_argument(
        "--verbose-level", type=whole, default=1, choices=range(4), metavar="0-3",
        help="0: warnings, 1: progress, 2 and 3: more",
    )  # fmt: skip
