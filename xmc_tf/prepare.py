"""``python -m xmc_tf.prepare``: read a table of texts and labels into a data set."""

import argparse
import dataclasses
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.files.outputs import refuse_output
from xmc_tf.common.process import cli
from xmc_tf.common.process.invocation import as_called
from xmc_tf.params import add_verbosity, truth
from xmc_tf.tables.columns import ColumnOptions
from xmc_tf.tables.preparation import PrepareOptions, prepare, summary_of
from xmc_tf.tables.sources import KINDS, SourceOptions
from xmc_tf.tables.splits import SplitOptions

_LOG = logging.getLogger(__name__)
_DESCRIPTION = """Read a table of texts and labels into a data set: one SQLite database of documents, labels and splits.

    python -m xmc_tf.prepare data.csv
    python -m xmc_tf.prepare data.csv --text-column title,abstract --label-column keywords --label-separator ";"

Tables: CSV and TSV, JSON lines, Parquet, SQLite, Annif's TSV files and document folders. What is not given is guessed
from the table, and reported. Rerun an interrupted command to resume."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    out = argparse.ArgumentParser(
        prog=as_called("python -m xmc_tf.prepare"), description=_DESCRIPTION, formatter_class=cli.HelpFormatter
    )
    out.add_argument("table", metavar="TABLE", help="file or folder")
    out.add_argument(
        "-o", "--output", metavar="FILE", help="database to write (default: TABLE with the ending .sqlite)"
    )
    out.add_argument("--json", action="store_true", help="print the summary as JSON")
    add_table_options(out)
    add_verbosity(out)
    return out


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of how a table is read and split."""
    group = parser.add_argument_group("table")
    add = group.add_argument
    add("--text-column", metavar="NAME,…", help="columns of texts, joined (default: text, or guessed)")
    add("--label-column", metavar="NAME", help="column of labels (default: label, or guessed)")
    add("--label-separator", metavar="TEXT", help='between the labels of a cell; "" for one label per cell')
    add("--document-column", metavar="NAME", help="column that names the document, for tables with one label per row")
    add("--format", choices=KINDS, help="format of the table (default: by its content)")
    add("--encoding", metavar="NAME", help="encoding of a text file (default: by its content)")
    add("--separator", metavar="CHARACTER", help="between cells: one character, or tab")
    add("--header", type=truth, metavar="true/false", help="the first row holds the names of the columns")
    add("--table", dest="sqlite_table", metavar="NAME", help="table of an SQLite database")
    add("--max-bad-rows", type=float, default=0.01, metavar="SHARE", help="share of rows that may be unusable")
    group = parser.add_argument_group("splits")
    add = group.add_argument
    add("--validation", type=float, default=0.1, metavar="SHARE", help="share of documents to choose settings on")
    add("--test", type=float, default=0.1, metavar="SHARE", help="share of documents to measure the model on")
    add("--split-seed", type=int, default=0, metavar="INT", help="another seed gives another split")


def table_options(arguments: argparse.Namespace) -> PrepareOptions:
    """Return the options that :func:`add_table_options` has added."""
    text = arguments.text_column
    return PrepareOptions(
        SourceOptions(
            arguments.format, arguments.encoding, arguments.separator, arguments.header, arguments.sqlite_table
        ),
        ColumnOptions(
            None if text is None else text.split(","),
            arguments.label_column,
            arguments.label_separator,
            arguments.document_column,
        ),
        SplitOptions(arguments.validation, arguments.test, arguments.split_seed),
        arguments.max_bad_rows,
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Read a table, and print what it holds."""
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    table = Path(arguments.table)
    output = Path(arguments.output) if arguments.output else table.with_name(f"{table.stem or 'data'}.sqlite")
    refuse_output("-o", output, {"TABLE": table})
    store = prepare(table, output, table_options(arguments))
    summary = summary_of(store)
    print(json.dumps(dataclasses.asdict(summary)) if arguments.json else f"{output}\n{summary.text()}")


if __name__ == "__main__":
    cli.run(main)
