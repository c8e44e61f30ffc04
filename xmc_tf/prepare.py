"""``python -m xmc_tf.prepare``: convert a table of texts and labels to a data set."""

import argparse
import dataclasses
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.process import cli
from xmc_tf.params import add_flags, with_config
from xmc_tf.store.outputs import check_output_path
from xmc_tf.tables.preparation import prepare
from xmc_tf.tables.summary import summary_of
from xmc_tf.tables.table_flags import add_table_options, database_of, table_options

_LOG = logging.getLogger(__name__)
_DESCRIPTION = """Read a table of texts and labels into a data set: one SQLite database of documents, labels and splits.

    python -m xmc_tf.prepare data.csv
    python -m xmc_tf.prepare data.csv --text-column title,abstract --label-column keywords --label-separator ";"
    python -m xmc_tf.prepare texts.txt --label-lists labels.txt
    python -m xmc_tf.prepare config.toml

A configuration has the flags as keys, and the file of the table as the key table (--table is sqlite_table there):
    table = "data.csv"
    text_column = ["title", "abstract"]

Tables: CSV and TSV, JSON lines (also .gz), Parquet, SQLite, Annif's TSV files and document folders, PECOS's lines of
labels and text, a folder of X.trn.txt and Y.trn.npz, and sparse features of the Extreme Classification Repository. What
the options leave open is guessed from the table, and reported. Rerun an interrupted command to resume."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.prepare", _DESCRIPTION)
    out.add_argument("table", metavar="TABLE", help="file or folder")
    out.add_argument(
        "-o", "--output", metavar="FILE", help="database to write (default: TABLE with the ending .sqlite)"
    )
    out.add_argument("--json", action="store_true", help="print the summary as JSON")
    add_table_options(out)
    add_flags(out, "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Prepare a table, and print a summary of the data set."""
    flags = parser()
    arguments = flags.parse_args(with_config(flags, sys.argv[1:] if argv is None else argv))
    cli.set_verbosity(arguments.verbose_level)
    table = Path(arguments.table)
    output = Path(arguments.output) if arguments.output else database_of(table)
    check_output_path("-o", output, {"TABLE": table, "--label-lists": arguments.label_lists}, None)
    store = prepare(table, output, table_options(arguments))
    summary = summary_of(store)
    about = json.dumps(dataclasses.asdict(summary)) if arguments.json else f"{output}\n{summary.text()}"
    print(about)


if __name__ == "__main__":
    cli.run(main)
