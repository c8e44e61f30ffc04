"""Flags for reading and splitting a table."""

import argparse
from dataclasses import replace
from pathlib import Path

from xmc_tf.common.numbers import share
from xmc_tf.tables.columns import ColumnOptions
from xmc_tf.tables.preparation import PrepareOptions, is_of_another
from xmc_tf.tables.reading_flags import add_reading_options, source_options, text_columns
from xmc_tf.tables.splits import SplitOptions


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags for reading and splitting a table."""
    add = add_reading_options(parser).add_argument
    add("--label-column", metavar="NAME,…", help="label columns, joined (default: label, or guessed)")
    add("--label-separator", metavar="TEXT", help='separator of the labels in a cell; "" for one label per cell')
    add(
        "--keep-na-labels",
        action="store_true",
        help="keep labels such as nan, None, null, N/A and - (default: no label)",
    )
    add("--fold-labels", action="store_true", help="train labels that differ only in case or blanks as one")
    add("--document-column", metavar="NAME", help="column that names the document, for tables with one label per row")
    add(
        "--max-bad-rows", type=share, metavar="SHARE",
        help="share of rows that may be unusable, such as 0.15 or 15%% (default: half may lack a text or a label, one "
        "in a hundred may be unreadable)",
    )  # fmt: skip
    add(
        "--names-file", metavar="FILE",
        help="names of the labels, for tables whose labels are identifiers (lines of identifier, tab, name) or numbers "
        "from 0 (one name per line); or a SKOS vocabulary (.ttl, .rdf, .xml, .nt) with their identifiers",
    )  # fmt: skip
    add("--names-language", metavar="TAG", help="language of names in a vocabulary, such as en (default: the only one)")
    add(
        "--label-lists", metavar="FILE",
        help="label names or numbers of each text, one line per text; TABLE is then a file with one text per line",
    )  # fmt: skip
    group = parser.add_argument_group("splits of the table")
    add = group.add_argument
    add("--test-table", metavar="FILE", help="table of the test documents (default: a share of the rows)")
    add("--test-label-lists", metavar="FILE", help="label lists of --test-table")
    add("--validation", type=share, default=0.1, metavar="SHARE", help="share of documents to choose settings on")
    add("--test", type=share, default=0.1, metavar="SHARE", help="share of documents to measure the model on, or 20%%")
    add("--split-seed", type=int, default=0, metavar="INT", help="random seed of the split")


def table_options(arguments: argparse.Namespace) -> PrepareOptions:
    """Create `PrepareOptions` from the flags of `add_table_options`."""
    texts = text_columns(arguments)
    return PrepareOptions(
        replace(source_options(arguments), label_lists=arguments.label_lists),
        ColumnOptions(
            texts,
            arguments.label_column,
            arguments.label_separator,
            arguments.document_column,
            keep_na=arguments.keep_na_labels,
            fold=arguments.fold_labels,
        ),
        SplitOptions(arguments.validation, arguments.test, arguments.split_seed),
        arguments.max_bad_rows,
        arguments.test_table,
        arguments.names_file,
        arguments.test_label_lists,
        arguments.names_language,
    )


def database_of(table: str | Path) -> Path:
    """Return the default path of a table's database, beside the table; another name if something else lies there."""
    table = Path(table)
    if table.name in ("", ".."):  # the current folder or a parent folder
        return table / "data.sqlite"
    prepared = table.with_name(f"{table.stem}.prepared.sqlite")
    database = table.with_name(f"{table.stem or 'data'}.sqlite")
    if database == table:
        return prepared
    other = table.with_name(f"{table.name}.sqlite") if table.suffix else prepared
    return other if is_of_another(database, table) else database
