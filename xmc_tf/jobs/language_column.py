"""The languages of a table's texts, from a column of language codes."""

import logging
from collections import Counter
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.tables.columns import place_of
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.records import TableRow
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.store import TableStore
from xmc_tf.words.languages import known_code

_LOG = logging.getLogger(__name__)
_FLAG = "--language-column NAME"
_LEAST_SHARE = 0.01  # of the rows; each dictionary costs memory, and may contain words of other languages
_SHOWN = 5


def languages_of_column(table: Path, column: str, options: SourceOptions) -> str:
    """Return the common language codes in a table column, most frequent first, in the format of ``--language``."""
    if table.is_file() and TableStore.is_data_set(table):
        raise InputError(
            f"{table} is a data set, which has no language column", fix="set the languages with --language"
        )
    source = open_source(table, options)
    at = place_of(source.name, source.columns, column, _FLAG)
    cells = (str(row.cells[at] or "") for row in source.records() if isinstance(row, TableRow))
    written = Counter(_first(cell) for cell in cells)
    counts: Counter[str] = Counter()
    for code, count in written.items():
        if (known := known_code(code)) is not None:
            counts[known] += count
    if not counts:
        raise InputError(
            f"{source.name}: column {column!r} contains no language codes", expected="codes such as fi, fin or en-GB",
            received=", ".join(repr(code) for code, _ in written.most_common(_SHOWN)),
            fix=f"name another column ({_FLAG}), or set the languages with --language",
        )  # fmt: skip
    least = _LEAST_SHARE * written.total()
    found = {code: count for code, count in counts.most_common() if count >= least or len(counts) == 1}
    listed = ", ".join(f"{code} ({count:,} rows)" for code, count in found.items())
    others = written.total() - sum(found.values())
    _LOG.info("languages: %s, from column %r; %s other rows", listed, column, f"{others:,}")
    return ",".join(found)


def _first(cell: str) -> str:
    """Return the first language code in a cell that may contain several."""
    for separator in ",;|/":
        cell = cell.replace(separator, " ")
    return next(iter(cell.split()), "")
