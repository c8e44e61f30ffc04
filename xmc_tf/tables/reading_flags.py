"""Flags for reading the cells of a table."""

import argparse

from xmc_tf.common.process.cli import GivenFlags
from xmc_tf.params import truth
from xmc_tf.tables.columns import ColumnOptions, TrainedColumns
from xmc_tf.tables.reading.options import KINDS, SourceOptions


def add_reading_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the flags for reading the cells of a table; return their argument group."""
    group = parser.add_argument_group("table")
    add = group.add_argument
    add("--format", choices=KINDS, help="format of the table (default: detected)")
    add("--encoding", metavar="NAME", help="encoding of a text file (default: detected)")
    add("--separator", metavar="CHARACTER", help="separator of cells: one character, or tab (default: guessed)")
    add("--header", type=truth, metavar="true/false", help="the first row holds the column names (default: guessed)")
    add("--table", dest="sqlite_table", metavar="NAME", help="table of an SQLite database")
    add("--text-column", "--column", metavar="NAME,…", help="text columns, joined (default: text, or guessed)")
    return group


def add_label_options(group: argparse._ArgumentGroup) -> None:
    """Add the flags for the label column of a table for evaluation; see `labelled_columns`."""
    text = "label columns, joined (default: as in training, or guessed)"
    group.add_argument("--label-column", metavar="NAME,…", help=text)
    text = 'separator of the labels in a cell; "" for one label per cell (default: as in training)'
    group.add_argument("--label-separator", metavar="TEXT", help=text)


def labelled_columns(arguments: argparse.Namespace, trained: TrainedColumns | None) -> ColumnOptions:
    """Return the columns of a labelled table, from the flags or else as in the model's training."""
    texts = text_columns(arguments)
    return ColumnOptions(texts, arguments.label_column, arguments.label_separator, trained=trained)


def refuse_without_table(arguments: GivenFlags, *more: str) -> None:
    """Raise an error if a flag for tables, or one named in ``more``, is given without a table."""
    arguments.refuse(
        "format", "encoding", "separator", "header", "sqlite_table", "text_column", *more, needs="a table",
        expected="a table, such as a CSV file", fix="leave out the flags for tables",
    )  # fmt: skip


def source_options(arguments: argparse.Namespace) -> SourceOptions:
    """Create `SourceOptions` from the flags of `add_reading_options`."""
    names = ("format", "encoding", "separator", "header", "sqlite_table")
    return SourceOptions(*(getattr(arguments, name) for name in names))


def text_columns(arguments: argparse.Namespace) -> list[str] | None:
    """Return the names of the text columns, or None if they are to be guessed."""
    return None if arguments.text_column is None else arguments.text_column.split(",")
