"""Read interactions in chunks, as arrays of users, items, and times."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.tables.columns import place_of
from xmc_tf.tables.reading.delimited import DelimitedFile
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.records import BadRow, TableReader
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.reading.text_files import opened_text

CHUNK_ROWS = 1 << 18
LONGEST_NAME = 255  # bytes; longer names of users and items make a row unusable

# Usual column names, letters only, in order of preference.
_KNOWN = {
    "user": ("user", "userid", "customerid", "customer", "reviewerid", "visitorid", "sessionid", "session", "uid"),
    "item": ("item", "itemid", "productid", "product", "movieid", "bookid", "articleid", "trackid", "asin", "iid"),
    "time": ("time", "timestamp", "unixtimestamp", "datetime", "date", "ts", "reviewtime", "unixreviewtime"),
    "rating": ("rating", "ratings", "stars", "overall"),
}


@dataclass(frozen=True)
class InteractionColumns:
    """The column names of a table of interactions. If a name is None, the column is found by its usual names."""

    user: str | None = None
    item: str | None = None
    time: str | None = None  # a table without times must be in the order of time
    rating: str | None = None  # only read for a minimum rating


class Chunk(NamedTuple):
    users: np.ndarray  # names, UTF-8 of fixed width
    items: np.ndarray
    times: np.ndarray  # any numbers that grow with time; 0 in a table without times
    rows: int  # read from the table, unusable ones included
    bad: int  # unusable rows
    first_bad: str  # row and reason, or ""
    low: int  # rows with a rating below the minimum


class InteractionTable:
    """A table of interactions in a CSV, TSV, JSON lines, Parquet, or SQLite file."""

    def __init__(
        self, path: str | Path, columns: InteractionColumns | None = None, options: SourceOptions | None = None,
        min_rating: float | None = None,
    ) -> None:  # fmt: skip
        self.source: TableReader = open_source(path, options)
        columns = columns or InteractionColumns()
        self._user = _place(self.source, "user", columns.user)
        self._item = _place(self.source, "item", columns.item)
        if self._user == self._item:
            raise InputError(
                f"{self.source.name}: users and items are in the same column, {self.source.columns[self._user]!r}",
                expected="two columns", fix="name both: --user-column, --item-column",
            )  # fmt: skip
        time = _find(self.source, "time", columns.time)
        self._time = None if time in (self._user, self._item) else time
        self._min_rating = min_rating
        self._rating = None if min_rating is None else _place(self.source, "rating", columns.rating)

    @property
    def described(self) -> str:
        """A description of the kind of file and the columns that are read."""
        places = {"user": self._user, "item": self._item, "time": self._time, "rating": self._rating}
        named = [f"{name} {self.source.columns[at]!r}" for name, at in places.items() if at is not None]
        order = "" if self._time is not None else "; no time column: rows are taken to be in the order of time"
        return f"{self.source.kind}; {', '.join(named)}{order}"

    def chunks(self) -> Iterator[Chunk]:
        """Yield the interactions in the order of the table's rows."""
        rows: Iterator[Sequence[Any]]
        if isinstance(self.source, DelimitedFile):
            rows = _delimited_rows(self.source)
        else:
            rows = (() if isinstance(one, BadRow) else one.cells for one in self.source.records())
        read = 0
        while block := list(islice(rows, CHUNK_ROWS)):
            yield self._chunk(block, read)
            read += len(block)

    def _chunk(self, block: list[Sequence[Any]], before: int) -> Chunk:
        width = len(self.source.columns)
        faults = [(at, f"{len(row)} cells, expected {width}") for at, row in enumerate(block) if len(row) != width]
        at, good = np.arange(len(block)), block
        if faults:
            at = np.setdiff1d(at, [one for one, _ in faults])
            good = [block[one] for one in at]
        columns = list(zip(*good, strict=True)) if good else [()] * width
        users, items = _names(columns[self._user]), _names(columns[self._item])
        times, wrong_time = np.zeros(len(good)), np.zeros(len(good), bool)
        if self._time is not None:
            times, wrong_time = _numbers(columns[self._time], _seconds)
        low = wrong_rating = np.zeros(len(good), bool)
        if self._rating is not None:
            ratings, wrong_rating = _numbers(columns[self._rating], float)
            low = ~wrong_rating & (ratings < self._min_rating)
        for wrong, reason in (
            (users == b"", f"no user, or a name of more than {LONGEST_NAME} bytes"),
            (items == b"", f"no item, or a name of more than {LONGEST_NAME} bytes"),
            (wrong_time, "the time is neither a number nor a date such as 2024-05-31T12:00:00"),
            (wrong_rating, "the rating is not a number"),
        ):
            faults += [(int(at[one]), reason) for one in np.flatnonzero(wrong)[:1]]
        bad = (users == b"") | (items == b"") | wrong_time | wrong_rating
        keep = ~bad & ~low
        row, reason = min(faults, default=(0, ""))
        first_bad = f"row {before + row + 1:,}: {reason}" if faults else ""
        unusable = len(block) - len(good) + int(bad.sum())
        return Chunk(
            users[keep], items[keep], times[keep], len(block), unusable, first_bad, int((low & ~bad).sum())
        )  # fmt: skip


def _find(source: TableReader, what: str, given: str | None) -> int | None:
    """Return the index of the column ``given`` or, without a name, of one with a usual name; None if there is none."""
    if given is not None:
        return place_of(source.name, source.columns, given, f"--{what}-column NAME")
    plain = [re.sub(r"[^a-z]", "", name.lower()) for name in source.columns]
    return next((plain.index(name) for name in _KNOWN[what] if name in plain), None)


def _place(source: TableReader, what: str, given: str | None) -> int:
    found = _find(source, what, given)
    if found is None:
        raise InputError(
            f"{source.name}: cannot tell which column holds the {what}",
            expected=f"one of {', '.join(source.columns[:20])}",
            fix=f"--{what}-column NAME",
        )
    return found


def _delimited_rows(source: DelimitedFile) -> Iterator[Sequence[str]]:
    """Yield the rows of a CSV file. This is faster than ``records``, which also detects unclosed quotes."""
    with opened_text(source.path, source.encoding, newline="") as file:
        lines = (line.replace("\0", "") for line in file)
        rows = csv.reader(lines, delimiter=source.separator)
        try:
            yield from islice(filter(None, rows), source.head_rows, None)
        except csv.Error as error:
            raise InputError(
                f"{source.name}, line {rows.line_num:,}: {error}",
                expected="rows of CSV with closed quotes",
                fix="correct or remove the line",
            ) from None


def _names(cells: Sequence[Any]) -> np.ndarray:
    """Return the cells as names in fixed-width UTF-8. Names that are missing or too long become ""."""
    encoded = [_name(cell) for cell in cells]
    return np.array([name if len(name) <= LONGEST_NAME else b"" for name in encoded], dtype=np.bytes_)


def _name(cell: Any) -> bytes:
    if not isinstance(cell, str):
        # Whole numbers of a column with a missing cell are read as 3.0.
        whole = isinstance(cell, float) and cell.is_integer()
        cell = "" if cell is None else str(int(cell) if whole else cell)
    # Files of names have one name per line.
    name: bytes = " ".join(cell.split()).encode("utf-8", errors="replace")
    return name.replace(b"\0", b"")


def _numbers(cells: Sequence[Any], convert: Callable[[Any], float]) -> tuple[np.ndarray, np.ndarray]:
    """Convert cells to finite numbers, and return a mask of the cells that could not be converted."""
    try:
        values = np.array(cells, dtype=np.float64)
    except (ValueError, TypeError):
        values = np.array([_number(cell, convert) for cell in cells], dtype=np.float64)
    wrong = ~np.isfinite(values)
    return np.where(wrong, 0.0, values), wrong


def _number(cell: Any, convert: Callable[[Any], float]) -> float:
    try:
        return convert(cell)
    except (ValueError, TypeError, OverflowError):
        return np.nan


def _seconds(cell: Any) -> float:
    """Convert a time (number or date) to a number. Dates become seconds since 1970; their default time zone is UTC."""
    if hasattr(cell, "isoformat"):
        cell = cell.isoformat()
    try:
        return float(cell)
    except ValueError:
        when = datetime.fromisoformat(cell.strip().upper())  # Python reads the letters T and Z in upper case only
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
