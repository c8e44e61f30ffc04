"""The SQLite database of a data set, with its documents, labels, splits and runs."""

import contextlib
import errno
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.data.text import LazyTexts
from xmc_tf.store.files import atomic_file, remove_leftovers
from xmc_tf.tables.columns import Columns, TrainedColumns
from xmc_tf.tables.connections import OTHER_PLACE, connected, require_folder, write_error
from xmc_tf.tables.splits import SPLITS

FORMAT, VERSION = "xmc_tf.table", 2
_BATCH = 2048
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (id INTEGER PRIMARY KEY, line INTEGER NOT NULL, text TEXT NOT NULL, key INTEGER NOT NULL,
    name TEXT, split INTEGER);
CREATE TABLE labels (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, documents INTEGER NOT NULL DEFAULT 0);
CREATE TABLE document_labels (document INTEGER NOT NULL, label INTEGER NOT NULL, PRIMARY KEY (document, label))
    WITHOUT ROWID;
CREATE TABLE features (document INTEGER PRIMARY KEY, numbers BLOB NOT NULL, amounts BLOB NOT NULL);
CREATE TABLE bad_rows (line INTEGER NOT NULL, reason TEXT NOT NULL, start TEXT NOT NULL);
"""


class TableStore:
    """A data set in an SQLite database.

    Example:
        >>> store = TableStore.open("data.sqlite")
        >>> store.texts("train"), store.labels("train"), store.names

    Args:
        path: path of the database.
        connection: an open connection to it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection = path, connection

    @classmethod
    def create(cls, path: Path, **about: Any) -> "TableStore":
        """Create a data set without documents, atomically.

        Args:
            path: path of the new database. If another command has just created it, that database is opened.
            **about: values to store, as with :meth:`write_meta`.
        """
        for ending in ("-journal", "-wal", "-shm"):  # SQLite would take these for its own
            beside = path.with_name(path.name + ending)
            if beside.exists():
                raise InputError(
                    f"{beside} exists, and would be taken for a part of the new data set {path.name}",
                    expected="a name beside which SQLite can place its own files",
                    fix="give another name with -o (--data-set), or move that file",
                )
        require_folder(path)
        remove_leftovers(path)
        try:
            with contextlib.suppress(FileExistsError), atomic_file(path, new=True) as part:
                store = cls(path, connected(part, "rwc"))
                with store.writing():
                    store.connection.executescript(f"PRAGMA journal_mode = OFF; BEGIN; {_SCHEMA}")
                    store.put_meta({"format": FORMAT, "version": VERSION, **about})
                store.close()
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            raise InputError(
                f"the data set {path} cannot be written: {os.strerror(error.errno)}",
                expected="a folder that can be written to", fix=OTHER_PLACE,
            ) from None  # fmt: skip
        return cls.open(path, write=True)

    @staticmethod
    def is_data_set(path: str | Path) -> bool:
        """Return whether a file is a database written by ``xmc-tf prepare``.

        Args:
            path: any path.
        """
        path = Path(path)
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\x00":
                return False
        try:
            store = TableStore(path, connected(path, "ro"))
        except InputError:
            return False
        found = not store.has_views and store.meta("format") == FORMAT
        store.close()
        return found

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> "TableStore":
        """Open a database written by ``xmc-tf prepare``.

        Args:
            path: path of the database.
            write: whether to open it for writing too.
        """
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path} does not exist", expected="a database written by xmc-tf prepare")
        connection = connected(path, "rw" if write else "ro")
        store = cls(path, connection)
        if store.has_views or store.meta("format") != FORMAT:
            raise InputError(
                f"{path} is not a data set of xmc_tf",
                expected="a database written by xmc-tf prepare",
                fix="to read a table of another database, use xmc-tf prepare",
            )
        if (found := store.meta("version")) != VERSION:
            problem, fix = f"{path} has an unknown version", "prepare the table again"
            raise InputError(problem, expected=str(VERSION), received=str(found), fix=fix)
        if write:
            with store.writing():
                connection.execute("PRAGMA journal_mode = WAL")
        return store

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def meta(self, key: str) -> Any:
        """Return a value stored by :meth:`write_meta`, or None if there is none.

        Args:
            key: name of the value.
        """
        try:
            row = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        except sqlite3.DatabaseError:
            return None
        return None if row is None else parse_json(row[0], of=f"{self.path}: {key}", top=None)

    @property
    def has_views(self) -> bool:
        """Whether the database has views. Data sets have none; reading a foreign file's view may never end."""
        try:
            found = self.connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'view'").fetchone()
        except sqlite3.DatabaseError:
            return False
        return bool(found[0])

    @property
    def columns(self) -> TrainedColumns | None:
        """The names of the columns that were read; None if the table holds features."""
        chosen, source = self.meta("columns"), self.meta("source")
        if not chosen or not chosen["texts"]:
            return None
        columns = Columns(**{**chosen, "texts": tuple(chosen["texts"])})
        return TrainedColumns.of(columns, source["columns"], self.meta("label_ids"))

    def has_meta(self, **values: Any) -> bool:
        """Return whether all these values are stored.

        Args:
            **values: the expected values by name.
        """
        one = self.connection.execute
        rows = {key: one("SELECT value FROM meta WHERE key = ?", (key,)).fetchone() for key in values}
        return all(rows[key] == (json.dumps(value),) for key, value in values.items())

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Return a context manager for one transaction: it writes everything or nothing.

        Raises:
            InputError: another command is writing to the database, or the database is not writable.
            OSError: the disk is full.
        """
        try:
            with self.connection:
                yield self.connection
        except sqlite3.DatabaseError as error:
            raise write_error(self.path, error) from error

    @property
    def reading(self) -> int:
        """The number of times the table has been read again after a change of the table or of the chosen columns."""
        return int(self.meta("reading") or 0)

    def clear(self, about: dict[str, Any]) -> None:
        """Delete all documents and labels, and the predictions of all runs.

        Args:
            about: values to store instead of the deleted ones, as with :meth:`write_meta`.
        """
        tables = ("meta", "documents", "labels", "document_labels", "features", "bad_rows", "run_predictions")
        found = {name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        with self.writing() as write:
            for table in (name for name in (*tables, "text_tokens") if name in found):
                write.execute(f"DELETE FROM {table}")
            self.put_meta(about)

    def write_meta(self, **values: Any) -> None:
        """Store values as JSON.

        Args:
            **values: values by name.
        """
        with self.writing():
            self.put_meta(values)

    def put_meta(self, values: dict[str, Any]) -> None:
        """Store values as JSON within an open transaction.

        Args:
            values: values by name.
        """
        rows = [(key, json.dumps(value)) for key, value in values.items()]
        self.connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def split_number(self, split: str) -> int:
        """Return the number of a split in the database.

        Args:
            split: "train", "validation" or "test".
        """
        if split not in SPLITS:
            raise InputError(f"unknown split {split!r}", expected=", ".join(SPLITS))
        return SPLITS.index(split)

    def _where(self, split: str | None) -> tuple[str, tuple[int, ...]]:
        return ("", ()) if split is None else (" WHERE split = ?", (self.split_number(split),))

    def count(self, split: str | None = None) -> int:
        """Return the number of documents in a split, or in the whole data set.

        Args:
            split: "train", "validation" or "test"; None: all documents.
        """
        where, values = self._where(split)
        return int(self.connection.execute(f"SELECT count(*) FROM documents{where}", values).fetchone()[0])

    @property
    def names(self) -> list[str]:
        """The label names, in the order of the label numbers."""
        return [name for (name,) in self.connection.execute("SELECT name FROM labels ORDER BY id")]

    @property
    def nr_labels(self) -> int:
        """The number of labels."""
        return int(self.connection.execute("SELECT count(*) FROM labels").fetchone()[0])

    def ids(self, split: str) -> np.ndarray:
        """Return the document numbers of a split, in ascending order.

        Args:
            split: "train", "validation" or "test".
        """
        return self._ids(*self._where(split))

    def _ids(self, where: str, values: tuple[int, ...]) -> np.ndarray:
        rows = self.connection.execute(f"SELECT id FROM documents{where} ORDER BY id", values)
        return np.fromiter((row[0] for row in rows), np.int64)

    def texts(self, split: str) -> "StoredTexts":
        """Return the texts of a split; they are read from the database on access.

        Args:
            split: "train", "validation" or "test".
        """
        return StoredTexts(self.path, self.ids(split), self.reading)

    def document_names(self, split: str) -> list[str]:
        """Return the identifiers of the documents of a split, or their line numbers if they have no identifiers.

        Args:
            split: "train", "validation" or "test".
        """
        where, values = self._where(split)
        query = f"SELECT coalesce(name, 'line ' || line) FROM documents{where} ORDER BY id"
        return [name for (name,) in self.connection.execute(query, values)]

    def labels(self, split: str | None = None) -> csr_matrix:
        """Return the labels of a split as a matrix of documents × labels.

        Args:
            split: "train", "validation" or "test"; None: all documents.
        """
        where, values = self._where(split)
        join = "" if split is None else " JOIN documents ON documents.id = document"
        query = f"SELECT document, label FROM document_labels{join}{where} ORDER BY document, label"
        cells = (value for row in self.connection.execute(query, values) for value in row)
        pairs = np.fromiter(cells, np.int64).reshape(-1, 2)
        documents = self._ids(where, values)
        entries = (np.ones(len(pairs), np.float32), (np.searchsorted(documents, pairs[:, 0]), pairs[:, 1]))
        return csr_matrix(entries, shape=(len(documents), self.nr_labels))

    @property
    def nr_features(self) -> int:
        """The number of features if the table holds features instead of texts, else 0."""
        return int(self.meta("nr_features") or 0)

    def features(self, split: str) -> csr_matrix:
        """Return the features of a split, as a matrix of documents × features, if the table holds features.

        Args:
            split: "train", "validation" or "test".
        """
        if not self.nr_features:
            raise InputError(f"{self.path} holds texts, not features", fix="use texts(split)")
        where, values = self._where(split)
        joined = f"features JOIN documents ON documents.id = document{where}"
        rows = self.connection.execute(f"SELECT numbers, amounts FROM {joined} ORDER BY document", values)
        numbers, amounts = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
        for found, weights in rows:
            numbers.append(np.frombuffer(found, "<i4"))
            amounts.append(np.frombuffer(weights, "<f4"))
        arrays = (np.concatenate(amounts), np.concatenate(numbers), np.cumsum([0, *map(len, numbers[1:])]))
        X = csr_matrix(arrays, shape=(len(numbers) - 1, self.nr_features))
        X.sum_duplicates()
        return X


class StoredTexts(LazyTexts):
    """Texts in a database, read on access; line breaks within a text become spaces."""

    def __init__(self, path: Path, ids: np.ndarray, reading: int = 0) -> None:
        self.path, self.ids, self._reading = path, ids, reading
        self._connection: sqlite3.Connection | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return StoredTexts(self.path, self.ids[index], self._reading)
        return next(self._read(self.ids[[index]]))

    def rows(self, rows: np.ndarray) -> "StoredTexts":
        """Return the texts at the given positions, which must be ascending."""
        return StoredTexts(self.path, self.ids[rows], self._reading)

    def __iter__(self) -> Iterator[str]:
        for at in range(0, len(self.ids), _BATCH):
            yield from self._read(self.ids[at : at + _BATCH])

    def __repr__(self) -> str:
        return f"StoredTexts({str(self.path)!r}, {len(self):,} documents)"

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredTexts, (self.path, self.ids, self._reading)

    def _read(self, ids: np.ndarray) -> Iterator[str]:
        if self._connection is None:
            self._connection = connected(self.path, "ro")
        if TableStore(self.path, self._connection).reading != self._reading:
            raise InputError(
                f"{self.path} has been read again by another command, with other rows or columns",
                expected="the documents that this command began with", fix="run this command again",
            )  # fmt: skip
        first, last = int(ids[0]), int(ids[-1])
        wanted = set(ids.tolist())
        one, query = self._connection.execute, "SELECT id, text FROM documents WHERE id"
        # A range reads neighbouring pages; the ids of a split are spread over it evenly.
        if last - first < 64 * len(ids):
            rows: Iterable[tuple[int, str]] = one(f"{query} BETWEEN ? AND ? ORDER BY id", (first, last))
        else:
            rows = (one(f"{query} = ?", (number,)).fetchone() for number in ids.tolist())
        for number, text in rows:
            if number in wanted:
                yield " ".join(text.splitlines())
