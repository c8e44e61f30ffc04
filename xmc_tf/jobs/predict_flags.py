"""The flags of a prediction for a table, apart from what reads tables, which a single query does not need."""

import argparse
from typing import Any

from xmc_tf.tables.reading_flags import add_reading_options


def add_table_prediction(parser: argparse.ArgumentParser, source: Any) -> None:
    """Add the table, and how it is read.

    Args:
        parser: the parser of a command that predicts.
        source: its group of texts, of which one must be given.
    """
    source.add_argument("table", nargs="?", metavar="TABLE", help="table with a column of texts, such as a CSV file")
    group = add_reading_options(parser)
    group.add_argument(
        "--keep", metavar="NAME,…", help="columns to copy to the output, or all (default: a column named id)"
    )
