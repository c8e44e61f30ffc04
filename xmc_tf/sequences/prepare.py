"""``python -m xmc_tf.sequences.prepare``: prepare a training folder from interactions of users with items."""

import argparse
import json
import sys
from collections.abc import Sequence
from glob import glob, has_magic
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import positive, share
from xmc_tf.common.process import cli
from xmc_tf.params import add_flags, truth, with_config
from xmc_tf.sequences.data.folder import PreparedFolder
from xmc_tf.sequences.data.interactions import InteractionColumns
from xmc_tf.sequences.data.preparation import InteractionOptions, prepare
from xmc_tf.store.outputs import refuse_other_folder
from xmc_tf.tables.reading.options import SourceOptions

_KINDS = ("csv", "tsv", "jsonl", "parquet", "sqlite")
_DESCRIPTION = """Read interactions of users with items into a folder of histories, to train a sequence model on.

    python -m xmc_tf.sequences.prepare interactions.csv -o data
    python -m xmc_tf.sequences.prepare "logs/*.parquet" -o data --user-column customer --min-item-count 5
    python -m xmc_tf.sequences.prepare configs/bert4rec.toml

Tables can be CSV, TSV, JSON lines, Parquet, or SQLite. Columns without a flag are found by their usual names. Items are
numbered by frequency, and histories are in the order of time. Memory holds the item names and a part of the tables
(about 16 MB, or 1/256 of tables of more than 4 GB).

A configuration may have the flags as keys, and the files as the key tables; in a table [prepare], if the same file
configures the training."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.sequences.prepare", _DESCRIPTION)
    add = out.add_argument
    add("tables", metavar="TABLE", nargs="+", help="files of interactions; names may contain wildcards")
    add("-o", "--output", metavar="DIR", required=True, help="folder to write")
    add("--json", action="store_true", help="print the summary as JSON")
    group = out.add_argument_group("columns")
    for name in ("user", "item", "time", "rating"):
        group.add_argument(f"--{name}-column", metavar="NAME", help=f"column of the {name} (default: detected)")
    group.add_argument("--format", choices=_KINDS, help="format of the tables (default: detected)")
    group.add_argument("--encoding", metavar="NAME", help="encoding of text files (default: detected)")
    group.add_argument("--separator", metavar="CHARACTER", help="separator of the cells: one character, or tab")
    group.add_argument("--header", type=truth, metavar="true/false", help="the first row holds the column names")
    group.add_argument("--table", dest="sqlite_table", metavar="NAME", help="table of an SQLite database")
    group.add_argument(
        "--max-bad-rows", type=share, default=0.01, metavar="SHARE", help="maximum share of unusable rows"
    )
    add = out.add_argument_group("which interactions are used").add_argument
    add("--min-rating", type=float, metavar="NUMBER", help="leave out interactions with a lower rating")
    add("--min-item-count", type=positive, default=1, metavar="INT", help="leave out items with fewer interactions")
    add("--min-user-count", type=positive, default=3, metavar="INT",
        help="leave out users with fewer interactions, counted without the items that are left out")  # fmt: skip
    add("--max-user-count", type=positive, metavar="INT", help="leave out users with more interactions")
    add_flags(out, "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    flags = parser()
    a = flags.parse_args(with_config(flags, sys.argv[1:] if argv is None else argv))
    cli.set_verbosity(a.verbose_level)
    paths = _files(a.tables)
    for path in paths:
        if Path(a.output).resolve() in path.resolve().parents:
            raise InputError(f"-o {a.output} contains the table {path}", expected="a folder without inputs")
    refuse_other_folder("-o", a.output)
    options = InteractionOptions(
        InteractionColumns(a.user_column, a.item_column, a.time_column, a.rating_column),
        SourceOptions(a.format, a.encoding, a.separator, a.header, a.sqlite_table),
        a.min_rating, a.min_item_count, a.min_user_count, a.max_user_count, a.max_bad_rows,
    )  # fmt: skip
    data = prepare(paths, a.output, options)
    print(json.dumps(data.header) if a.json else _summary(data))


def _files(patterns: Sequence[str]) -> list[Path]:
    """Return the files that match the given names and wildcards, without duplicates."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        matches = sorted(glob(pattern)) if has_magic(pattern) and not Path(pattern).exists() else [pattern]
        if not matches:
            raise InputError(f"no file matches {pattern!r}", expected="files of interactions")
        found |= dict.fromkeys(map(Path, matches))
    return list(found)


def _summary(data: PreparedFolder) -> str:
    header = data.header
    average = header["interactions"] / max(header["users"], 1)
    return (
        f"{data.folder}: {header['interactions']:,} interactions of {header['users']:,} users with "
        f"{header['items']:,} items, {average:.1f} per user\n"
        f"left out: {header['rows_unusable']:,} unusable rows, {header['rows_below_min_rating']:,} below the minimum "
        f"rating, {header['rows_of_rare_users_and_items']:,} of rare users or items"
    )


if __name__ == "__main__":
    cli.run(main)
