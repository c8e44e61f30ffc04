"""The flags of how a table is read and split, for all commands that take a table."""

import argparse
from dataclasses import replace
from pathlib import Path

from xmc_tf.params import truth
from xmc_tf.tables.columns import ColumnOptions
from xmc_tf.tables.preparation import PrepareOptions
from xmc_tf.tables.reading.sources import KINDS, SourceOptions
from xmc_tf.tables.splits import SplitOptions


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


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of how a table is read and split."""
    add = add_reading_options(parser).add_argument
    add("--label-column", metavar="NAME", help="column of labels (default: label, or guessed)")
    add("--label-separator", metavar="TEXT", help='between the labels of a cell; "" for one label per cell')
    add("--document-column", metavar="NAME", help="column that names the document, for tables with one label per row")
    add("--max-bad-rows", type=float, default=0.01, metavar="SHARE", help="share of rows that may be unusable")
    add("--names-file", metavar="FILE", help="names of the labels, for tables whose labels are numbers from 0")
    add(
        "--label-lists", metavar="FILE",
        help="labels of each text, where TABLE is a file of texts: one line per text, of names or numbers",
    )  # fmt: skip
    group = parser.add_argument_group("splits of the table")
    add = group.add_argument
    add("--test-table", metavar="FILE", help="table of the test documents (default: a share of the rows)")
    add("--test-label-lists", metavar="FILE", help="label lists of --test-table")
    add("--validation", type=float, default=0.1, metavar="SHARE", help="share of documents to choose settings on")
    add("--test", type=float, default=0.1, metavar="SHARE", help="share of documents to measure the model on")
    add("--split-seed", type=int, default=0, metavar="INT", help="another seed gives another split")


def source_options(arguments: argparse.Namespace) -> SourceOptions:
    """Return how the cells are read, from the flags of :func:`add_reading_options`."""
    return SourceOptions(
        arguments.format, arguments.encoding, arguments.separator, arguments.header, arguments.sqlite_table
    )


def text_columns(arguments: argparse.Namespace) -> list[str] | None:
    """Return the names of the columns of texts; None: guessed."""
    return None if arguments.text_column is None else arguments.text_column.split(",")


def table_options(arguments: argparse.Namespace) -> PrepareOptions:
    """Return the options that :func:`add_table_options` has added."""
    return PrepareOptions(
        replace(source_options(arguments), label_lists=arguments.label_lists),
        ColumnOptions(
            text_columns(arguments), arguments.label_column, arguments.label_separator, arguments.document_column
        ),
        SplitOptions(arguments.validation, arguments.test, arguments.split_seed),
        arguments.max_bad_rows,
        arguments.test_table,
        arguments.names_file,
        arguments.test_label_lists,
    )


def database_of(table: str | Path) -> Path:
    """Return the database that a table is prepared into by default: beside it, with the ending .sqlite."""
    table = Path(table)
    if table.name in ("", ".."):  # the current folder, or one above
        return table / "data.sqlite"
    database = table.with_name(f"{table.stem or 'data'}.sqlite")
    return database if database != table else table.with_name(f"{table.stem}.prepared.sqlite")
