"""Read CSV and TSV files with any separator, quotes, line breaks in cells, missing headers and damaged rows."""

import csv
import sys
from collections import Counter, deque
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO

from xmc_tf.tables.column_names import LABELS, TEXTS, plain
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow
from xmc_tf.tables.reading.text_files import (
    LARGEST_CELL,
    lines_of,
    named,
    opened_text,
    text_encoding,
    unpacked_name,
    unpacked_size,
)

SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_FEW_LINES = 20  # of a row after one whose quote is not closed
_SAMPLE, _LEAST_LINES = 1 << 18, 3
_LONGEST_NAME = 80  # characters of a column name, if the header is guessed


class DelimitedFile(TableReader):
    """A CSV or TSV file. If ``encoding``, ``separator`` or ``header`` is None, it is guessed from the file."""

    unit = "MB"

    def __init__(
        self, path: Path, *, encoding: str | None = None, separator: str | None = None, header: bool | None = None
    ) -> None:
        self.path, self.name, self.files = path, str(path), (path,)
        self.encoding = text_encoding(path, encoding)
        self.size = max(unpacked_size(path) >> 20, 1)
        csv.field_size_limit(LARGEST_CELL)
        with self._open() as file:
            sample = file.read(_SAMPLE)
            # A header of its own may be followed by a text that is longer than the sample, or be missing.
            while len(sample.splitlines()) < _LEAST_LINES and len(sample) < LARGEST_CELL:
                if not (piece := file.read(len(sample) or 1)):
                    break
                sample += piece
        first, _, rest = sample.partition("\n")
        self._skip = 0
        if first.strip().lower().startswith("sep=") and len(first.strip()) == 5:  # Excel's own line
            separator, sample, self._skip = separator or first.strip()[-1], rest, 1
        lines = sample.splitlines(keepends=True)
        lines = lines[:-1] or lines  # the last one may be cut off
        self.separator = separator or _separator(lines, Path(unpacked_name(path)).suffix.lower())
        rows = [row for row in _parsed(lines, self.separator) if row][:100]
        self.header = _has_header(rows) if header is None else header
        self.header_is_guessed = header is None
        names = rows[0] if rows and self.header else [""] * (len(rows[0]) if rows else 0)
        names, seen = [name.strip() or f"column {n}" for n, name in enumerate(names, 1)], Counter[str]()
        self.columns = []
        for name in names:  # a name that occurs again gets a number, as in pandas
            self.columns.append(f"{name}.{seen[name]}" if seen[name] else name)
            seen[name] += 1
        self.kind = f"{named(self.encoding)}, separated by {SEPARATORS.get(self.separator, repr(self.separator))}"

    def records(self) -> Iterator[TableRow | BadRow]:
        """Yield all rows; rows with too many or too few cells, or with a quote that is not closed, become `BadRow`."""
        for number, (line, row, cells, fault) in enumerate(self._rows()):
            if number == 0 and self.header and not fault:
                continue
            if not fault and len(cells) == len(self.columns):
                yield TableRow(line, cells, None if row == line else row)
            elif fault or any(cells):
                reason = fault or f"{len(cells)} cells, expected {len(self.columns)}"
                yield BadRow(line, reason, " | ".join(cells)[:80])

    @property
    def head_rows(self) -> int:
        """The number of lines before the first record: Excel's ``sep=`` line and the header."""
        return self._skip + self.header

    def _open(self) -> IO[str]:
        return opened_text(self.path, self.encoding, newline="")

    def _rows(self) -> Iterator[tuple[int, int, list[str], str]]:
        """Yield (first line, row number, cells, fault) of each row. If a quote is not closed, one line is lost."""
        self.read = 0
        with self._open() as file:
            lines = _Lines(lines_of(file, self.path), self)
            for _ in range(self._skip):
                next(lines, None)
            for row in count(1):
                lines.begin_row()
                begin = lines.number + 1
                try:
                    cells = next(csv.reader(lines, delimiter=self.separator, strict=False))
                    if lines.ended and _is_open(lines.row, self.separator):
                        raise csv.Error("a quote is not closed")
                except StopIteration:
                    return
                except csv.Error as error:
                    fault = "a quote is not closed" if len(lines.row) > 1 else str(error)
                    start = lines.row[0] if lines.row else ""
                    lines.push_back()
                    yield begin, row, [start], fault
                    continue
                if cells:
                    yield begin, row, cells, ""


class _Lines:
    """The lines of a file; all but the first line of the current row can be pushed back and read again.

    After a row whose quote is not closed up to the end, rows have few lines: each could be such a row, and would read
    all lines after it again.
    """

    def __init__(self, file: Iterator[str], source: DelimitedFile) -> None:
        self._file, self._source = file, source
        self._waiting: deque[str] = deque()
        self.number, self.row, self.ended = 0, [], False  # type: tuple[int, list[str], bool]
        self._size, self._most_lines = 0, sys.maxsize  # characters and lines of a row

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        if len(self.row) >= self._most_lines or self._size > LARGEST_CELL:
            raise csv.Error("a quote is not closed")
        if self._waiting:
            line = self._waiting.popleft()
        else:
            line = next(self._file, "")
            self._source.read += len(line)
        if not line:
            self.ended = True
            raise StopIteration
        self.number += 1
        self._size += len(line)
        self.row.append(line)
        return line.replace("\0", "")

    def begin_row(self) -> None:
        self.row, self.ended, self._size = [], False, 0

    def push_back(self) -> None:
        """Push back all lines of the current row except the first."""
        self._most_lines = _FEW_LINES
        self._waiting.extendleft(reversed(self.row[1:]))
        self.number -= max(len(self.row) - 1, 0)


def _is_open(row: list[str], separator: str) -> bool:
    """Return whether a row ends inside a quoted cell."""
    return sum(1 for _ in csv.reader([*row, "next"], delimiter=separator)) == 1


def _parsed(lines: list[str], separator: str) -> list[list[str]]:
    try:
        return list(csv.reader((line.replace("\0", "") for line in lines), delimiter=separator))
    except csv.Error:
        return []


def _separator(lines: list[str], suffix: str) -> str:
    """Return the separator that splits the sample most consistently; among similar ones, that with the most cells."""
    best, chosen = (0.0, 0), "\t" if suffix in (".tsv", ".tab") else ","
    for separator in sorted(SEPARATORS, key=lambda one: one != chosen):
        counts = [len(row) for row in _parsed(lines, separator) if row]
        usual = max(set(counts), key=counts.count, default=0)
        # A character that occurs in texts now and then cuts rows into different numbers of cells.
        found = (counts.count(usual) / max(len(counts), 1), usual)
        if counts and counts[0] != usual:  # such as bars between the labels of a cell, which the header lacks
            found = (found[0] / 2, usual)
        if usual > 1 and (found[0] >= best[0] + 0.05 or (found[0] >= best[0] - 0.05 and found[1] > best[1])):
            best, chosen = found, separator
    return chosen


def _has_header(rows: list[list[str]]) -> bool:
    """Guess whether the first row is a header: short, distinct names, no numbers, and different from the other rows."""
    names = [cell.strip() for cell in rows[0]] if rows else [""]
    below = [row for row in rows[1:] if len(row) == len(names)]
    # pandas writes the index of a DataFrame under an empty name.
    own = names[1:] if not names[0] and below and all(_is_number(row[0]) for row in below) else names
    usual = any(plain(name) in TEXTS or plain(name) in LABELS for name in own)
    if not usual and not (own and all(own) and len(set(own)) == len(own)):
        return False
    if any(len(name) > _LONGEST_NAME or _is_number(name) for name in names):
        return False
    if not below:
        return True
    # In a file without a header the first row is like the others: its cells occur below, or are as long as those.
    occur = any(name in {row[at].strip() for row in below} for at, name in enumerate(names) if name)
    longest = max(range(len(names)), key=lambda at: sum(len(row[at]) for row in below))
    mean = sum(len(row[longest]) for row in below) / len(below)
    return not occur and len(names[longest]) <= max(mean / 2, 12)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
