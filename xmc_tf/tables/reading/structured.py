"""Read tables from JSON lines, Parquet, SQLite and DataFrames."""

import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import MOST_BYTES, parse_json
from xmc_tf.common.process.extras import pip_install
from xmc_tf.data.in_memory import columns_of, listed, plain
from xmc_tf.tables.connections import foreign_database
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow
from xmc_tf.tables.reading.text_files import (
    LARGEST_CELL,
    lines_of,
    named,
    opened_text,
    packing,
    text_encoding,
    unpacked_size,
)

_LOG = logging.getLogger(__name__)
_SAMPLE = 1000
_MANY_KEYS, _LEAST_SHARE = 200, 0.01  # of JSON objects, and the share of the objects that must have a key
_BATCH = 4096
LABELLED = "labelled_texts"
"""The view of texts and labels in the file of `xmc-tf label`, which is read unless another table is named."""
MOST_SECONDS = 60  # to count the rows of a view, which may be endless


class JsonLines(TableReader):
    """A file with one JSON object per line, or an array of objects. Keys that the first thousand lack are ignored."""

    unit = "MB"

    def __init__(self, path: Path, *, encoding: str | None = None) -> None:
        self.path, self.name, self.files = path, str(path), (path,)
        self.encoding = text_encoding(path, encoding)
        method = packing(path)
        self.kind = f"JSON lines in {named(self.encoding)}" + (f", packed by {method}" if method else "")
        self.size = max(unpacked_size(path) >> 20, 1)
        sample = [value for _, _, value in islice(self._values(), _SAMPLE)]
        keys = Counter(str(key) for value in sample if isinstance(value, dict) for key in value)
        if not keys:
            expected = 'one object per line, such as {"text": "…", "labels": ["…"]}, or an array of objects'
            fault = next((value for value in sample if isinstance(value, str)), "")
            fix = "if it is cut off, copy it again" if fault else ""
            raise InputError(f"{path} holds no JSON objects", expected=expected, received=fault, fix=fix)
        # Each row has a cell for each column: as many columns as rows would take a time of rows times rows.
        least = len(sample) * _LEAST_SHARE if len(keys) > _MANY_KEYS else 0
        self.columns = [key for key, count in keys.items() if count >= least]
        if rare := len(keys) - len(self.columns):
            _LOG.warning(
                "%s: %s of %s keys are ignored, because fewer than 1 %% of the objects have them", path, f"{rare:,}",
                f"{len(keys):,}",
            )  # fmt: skip

    def records(self) -> Iterator[TableRow | BadRow]:
        for number, text, value in self._values():
            if isinstance(value, dict):
                yield TableRow(number, [value.get(key) for key in self.columns])
            else:
                yield BadRow(number, value if isinstance(value, str) else "not a JSON object", text.strip()[:80])

    def _values(self) -> Iterator[tuple[int, str, Any]]:
        """Yield the number, the text and the value of each line, or of each element of an array."""
        self.read = 0
        with opened_text(self.path, self.encoding) as file:
            for number, line in enumerate(lines_of(file, self.path), 1):
                self.read += len(line)
                if number == 1 and line.lstrip("\ufeff \t\r\n")[:1] == "[":
                    found = _object(line + file.read(MOST_BYTES))  # more is refused
                    values = found if isinstance(found, list) else [found] if isinstance(found, str) else []
                    yield from ((at, str(one), one) for at, one in enumerate(values, 1))
                    return
                if line.strip():
                    yield number, line, _object(line)


class ParquetFile(TableReader):
    def __init__(self, path: Path) -> None:
        try:
            import pyarrow.parquet
        except ImportError:
            raise InputError(f"{path}: Parquet files need the package pyarrow", fix=pip_install("tables")) from None
        self.name, self.kind, self.files, self._error = str(path), "Parquet", (path,), pyarrow.ArrowException
        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{path} cannot be read as Parquet: {error}", fix="copy the file again") from None
        self.columns = [str(name) for name in self._file.schema_arrow.names]
        self.size = int(self._file.metadata.num_rows)

    def records(self) -> Iterator[TableRow | BadRow]:
        self.read = 0
        batches = self._file.iter_batches(batch_size=_BATCH)
        while True:
            try:
                columns = [column.to_pylist() for column in next(batches).columns]
            except StopIteration:
                return
            except (self._error, OSError) as error:
                raise InputError(
                    f"{self.name} is damaged after row {self.read:,}: {error}", fix="copy the file again"
                ) from None
            for cells in zip(*columns, strict=True):
                self.read += 1
                yield TableRow(self.read, list(cells))


class SqliteTable(TableReader):
    """A table or view of an SQLite database, opened read-only. If ``table`` is None, it must be the only one."""

    def __init__(self, path: Path, table: str | None = None) -> None:
        self.name, self.kind = str(path), "SQLite"
        try:
            self._database = foreign_database(path)
            self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_CELL)  # of a cell, and of a row
            rows = self._database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{path} is not an SQLite database: {error}", fix="copy it again, or correct its name"
            ) from None
        tables = [name for (name,) in rows if not name.startswith("sqlite_")]
        if table is None and (len(tables) == 1 or LABELLED in tables):
            table = tables[0] if len(tables) == 1 else LABELLED
        if table is None or table not in tables:
            raise InputError(
                f"{path}: " + ("cannot tell which table to read" if table is None else f"no table {table!r}"),
                expected="one of " + ", ".join(sorted(tables)[:20]),
                fix="choose one with --table NAME",
            )
        self._database.execute("BEGIN")  # so that everything is read from one state
        # Names cannot be parameters of a statement, so they are quoted.
        self._quoted = quoted(table)
        self._database.text_factory = lambda text: text.decode("utf-8", "replace")
        # Not from PRAGMA table_info, which leaves out generated columns.
        try:
            found = self._database.execute(f"SELECT * FROM {self._quoted} LIMIT 0")
        except sqlite3.Error as error:
            raise self._damaged(error) from None
        self.columns = [one[0] for one in found.description]
        began = time.monotonic()
        self._database.set_progress_handler(lambda: time.monotonic() - began > MOST_SECONDS, 100_000)
        try:
            self.size = int(self._database.execute(f"SELECT count(*) FROM {self._quoted}").fetchone()[0])
        except sqlite3.Error as error:
            raise InputError(
                f"{path}: the rows of {table!r} cannot be counted: {error}",
                expected=f"a table, or a view that can be counted in {MOST_SECONDS} s",
                fix=f"write the view to a table: CREATE TABLE documents AS SELECT * FROM {self._quoted} LIMIT 1000000",
            ) from None
        self._database.set_progress_handler(None, 0)

    def __del__(self) -> None:
        if hasattr(self, "_database"):
            self._database.close()  # which the interpreter may do much later, and until then nobody could write

    def records(self) -> Iterator[TableRow | BadRow]:
        try:
            for number, cells in enumerate(self._database.execute(f"SELECT * FROM {self._quoted}"), 1):
                self.read = number
                yield TableRow(number, list(cells))
        except sqlite3.Error as error:
            raise self._damaged(error) from None

    def _damaged(self, error: sqlite3.Error) -> InputError:
        return InputError(
            f"{self.name} cannot be read after row {self.read:,}: {error}",
            expected=f"an undamaged database, with rows of at most {LARGEST_CELL:,} bytes", fix="copy it again",
        )  # fmt: skip


class Frame(TableReader):
    """A DataFrame of pandas, Polars or PyArrow, or a mapping of column names to sequences."""

    def __init__(self, frame: Any) -> None:
        self.name, self.kind = "the DataFrame", type(frame).__module__.partition(".")[0]
        names, columns = columns_of(frame)
        self.columns, self._columns = list(map(column_name, names)), list(map(listed, columns))
        self.size = len(self._columns[0]) if self._columns else 0

    def records(self) -> Iterator[TableRow | BadRow]:
        for number, cells in enumerate(zip(*(map(plain, column) for column in self._columns), strict=True), 1):
            self.read = number
            yield TableRow(number, list(cells))


def column_name(name: Any) -> str:
    """Return the name of a column; the levels of pandas' column names are joined by dots."""
    return ".".join(filter(None, map(str, name))) if isinstance(name, tuple) else str(name)


def quoted(name: str) -> str:
    """Quote a name as an SQL identifier."""
    if "\0" in name:
        raise InputError("the name of a table or column contains a NUL character", received=repr(name[:80]))
    return '"' + name.replace('"', '""') + '"'


def _object(line: str) -> Any:
    """Parse the JSON value on a line; if it is invalid, return a description of the problem."""
    try:
        return parse_json(line, of="the line", top=None, foreign=True)
    except InputError as error:
        return f"{error.problem.removeprefix('the line is ')}: {error.received}"[:80]
