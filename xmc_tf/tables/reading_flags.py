"""The flags of how the cells of a table are read."""

import argparse
from collections.abc import Mapping

from xmc_tf.common.errors import InputError
from xmc_tf.params import truth
from xmc_tf.tables.columns import ColumnOptions, TrainedColumns
from xmc_tf.tables.reading.options import KINDS, SourceOptions


def add_reading_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options of how the cells of a table are read; return their group, for more."""
    group = parser.add_argument_group("table")
    add = group.add_argument
    add("--format", choices=KINDS, help="format of the table (default: by its content)")
    add("--encoding", metavar="NAME", help="encoding of a text file (default: by its content)")
    add("--separator", metavar="CHARACTER", help="between cells: one character, or tab")
    add("--header", type=truth, metavar="true/false", help="the first row holds the names of the columns")
    add("--table", dest="sqlite_table", metavar="NAME", help="table of an SQLite database")
    add("--text-column", "--column", metavar="NAME,…", help="columns of texts, joined (default: text, or guessed)")
    return group


def add_label_options(group: argparse._ArgumentGroup) -> None:
    """Add the columns of labels of a table that a model is asked about; see :func:`labelled_columns`."""
    group.add_argument("--label-column", metavar="NAME", help="column of labels (default: as in training, or guessed)")
    group.add_argument(
        "--label-separator", metavar="TEXT",
        help='between the labels of a cell; "" for one label per cell (default: as in training)',
    )  # fmt: skip


def labelled_columns(arguments: argparse.Namespace, trained: TrainedColumns | None) -> ColumnOptions:
    """Return the columns of a labelled table, from the flags and, without them, those of a model's training table."""
    return ColumnOptions(
        text_columns(arguments), arguments.label_column, arguments.label_separator, trained=trained
    )  # fmt: skip


def refuse_without_table(arguments: argparse.Namespace, more: Mapping[str, str]) -> None:
    """Refuse the flags of tables on a command line without a table.

    Args:
        arguments: the parsed flags.
        more: further flags of tables, by the names of their values.

    Raises:
        InputError: one of them is there.
    """
    flags = {name: f"--{name.replace('_', '-')}" for name in ("format", "encoding", "separator", "header")}
    flags |= {"sqlite_table": "--table", "text_column": "--text-column", **more}
    if found := [flag for name, flag in flags.items() if getattr(arguments, name) is not None]:
        raise InputError(
            f"{', '.join(found)}: there is no table", expected="a table, such as a CSV file", fix="leave it out"
        )


def source_options(arguments: argparse.Namespace) -> SourceOptions:
    """Return how the cells are read, from the flags of :func:`add_reading_options`."""
    return SourceOptions(
        arguments.format, arguments.encoding, arguments.separator, arguments.header, arguments.sqlite_table
    )


def text_columns(arguments: argparse.Namespace) -> list[str] | None:
    """Return the names of the columns of texts; None: guessed."""
    return None if arguments.text_column is None else arguments.text_column.split(",")
