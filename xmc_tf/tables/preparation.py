"""Read a table into its database: streamed, in bounded memory, and resumed where it was interrupted."""

import hashlib
import logging
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.resuming import finished, resumes_from
from xmc_tf.common.progress import Progress
from xmc_tf.tables.columns import ColumnOptions, Columns, choose_columns
from xmc_tf.tables.label_names import load_label_names
from xmc_tf.tables.records import BadRow, Record, Source
from xmc_tf.tables.sources import SourceOptions, open_source
from xmc_tf.tables.splits import SPLITS, TRAIN, VALIDATION, SplitOptions, split_documents, text_key
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.two_tables import TwoTables

_LOG = logging.getLogger(__name__)
_COMMIT = 20_000  # rows between two points from which reading resumes
_SAMPLE = 1000  # rows that columns are guessed from
_PIECE = 1 << 20  # bytes of a checksum
_SHOWN = 5  # bad rows in a message


@dataclass(frozen=True)
class PrepareOptions:
    """Options of :func:`prepare`.

    Example:
        >>> columns = ColumnOptions(text=["text"], labels="label")
        >>> store = prepare("data.csv", "other.sqlite", PrepareOptions(columns=columns, splits=SplitOptions(test=0.2)))

    Args:
        source: how it is read.
        columns: which columns hold texts and labels.
        splits: what is held out.
        max_bad_rows: share of the rows that may be unusable.
        test_table: table of the same kind whose rows are the test documents.
        test_label_lists: labels of ``test_table``, where ``source`` has label lists.
        label_names: file of label names, for tables whose labels are numbers from 0: one name per line, or JSON lines
            with the key ``title``.
    """

    source: SourceOptions = field(default_factory=SourceOptions)
    columns: ColumnOptions = field(default_factory=ColumnOptions)
    splits: SplitOptions = field(default_factory=SplitOptions)
    max_bad_rows: float = 0.01
    test_table: str | Path | None = None
    label_names: str | Path | None = None
    test_label_lists: str | Path | None = None


@dataclass(frozen=True)
class Summary:
    """The content of a data set, in numbers.

    Args:
        documents: number of documents by split.
        labels: number of labels.
        pairs: number of labels of all documents.
        bad_rows: number of rows that were not used, by reason.
        copies: documents whose text occurs before.
        only_in_test: number of labels that no other documents than test documents have.
        guesses: sentences about what was guessed.
        single_label: whether each document has exactly one label.
    """

    documents: dict[str, int]
    labels: int
    pairs: int
    bad_rows: dict[str, int]
    copies: int
    only_in_test: int
    guesses: list[str]
    single_label: bool = False

    def text(self) -> str:
        """Return the summary as lines for a terminal."""
        total = sum(self.documents.values())
        lines = [
            f"{total:,} documents: " + ", ".join(f"{count:,} {split}" for split, count in self.documents.items()),
            f"{self.labels:,} {'label' if self.labels == 1 else 'labels'}, "
            + ("one per document" if self.single_label else f"{self.pairs / max(total, 1):.1f} per document"),
        ]
        if self.copies:
            lines.append(f"{self.copies:,} documents repeat an earlier text; copies are in one split")
        if self.labels == 1:
            lines.append("with one label, there is nothing to choose between: every prediction is this label")
        if self.only_in_test:
            lines.append(f"{self.only_in_test:,} labels have test documents only: they cannot be learned")
        if self.bad_rows:
            reasons = ", ".join(f"{count:,} × {reason}" for reason, count in self.bad_rows.items())
            lines.append(f"{sum(self.bad_rows.values()):,} rows were not used: {reasons}")
        return "\n".join([*lines, *(f"guessed: {guess}" for guess in self.guesses)])


def prepare(table: Any, database: str | Path, options: PrepareOptions | None = None) -> TableStore:
    """Read a table into a database, or resume an interrupted run, or find it done.

    Example:
        >>> store = prepare("data.csv", "data.sqlite")
        >>> model = XRLinear.train(store.texts("train"), store.labels("train"), names=store.names)

    Args:
        table: path of a file or folder, or a DataFrame.
        database: path of the SQLite database.
        options: how to read, and what to hold out.

    Raises:
        InputError: if the table cannot be read, its columns are not known, or too many rows are unusable.
    """
    options, database = options or PrepareOptions(), Path(database)
    source = _opened(table, options)
    if not source.columns:
        raise InputError(f"{source.name} has no columns", expected="columns of texts and labels")
    if getattr(source, "nr_features", 0):
        columns, guesses = Columns((), 1), list[str]()
    else:
        columns, guesses = choose_columns(source.name, source.columns, _sample(source), options.columns)
    if getattr(source, "header_is_guessed", False) and not getattr(source, "header", True):
        guesses = [f"the first row is data, not names of columns ({len(source.columns)} columns; --header)", *guesses]
    wanted = {"source": _identity(table, source), "columns": asdict(columns)}
    if options.source.label_lists is not None:
        wanted["source"] |= {"label lists": _sampled_checksum(Path(options.source.label_lists))}
    if options.label_names is not None:
        wanted["source"] |= {"label names": Path(options.label_names).name}
    if database.exists():
        _refuse_or_remove_others(database, source.name, wanted)
    if database.exists():
        store = TableStore.open(database, write=True)
    else:
        store = TableStore.create(database)
        store.write_meta(**wanted, rows_read=0, guesses=guesses, nr_features=getattr(source, "nr_features", 0))
    if store.meta("rows_read") != "all":
        _LOG.info("%s: %s", source.name, source.kind)
        for guess in guesses:
            _LOG.info("guessed: %s", guess)
        _read(source, _Writer(store, columns, options.label_names), store)
        finished()
    _refuse_many_bad_rows(store, source.name, options.max_bad_rows)
    if not store.has_meta(splits=asdict(options.splits)):
        _split(store, options.splits)
    return store


def _refuse_or_remove_others(database: Path, name: str, wanted: dict[str, Any]) -> None:
    """Refuse a data set of another table; remove one that has no documents yet, or whose table was refused."""
    store = TableStore.open(database, write=True)
    fits, unusable = store.has_meta(**wanted), store.meta("splits") is None and store.meta("rows_read") in (0, "all")
    store.close()
    if fits:
        return
    if not unusable:
        raise InputError(
            f"{database} holds a data set of another table, of other columns, or of this table before a change",
            expected=f"a data set of {name} as it is now",
            fix=f"give another database, or remove it with the runs that it records: rm {database}",
        )
    _LOG.info("%s, which holds no complete data set, is replaced", database)
    database.unlink()


def _opened(table: Any, options: PrepareOptions) -> Source:
    """Return the table, followed by the table of test documents if there is one."""
    lists, test, test_lists = options.source.label_lists, options.test_table, options.test_label_lists
    if (test_lists is not None) != (lists is not None and test is not None):
        raise InputError(
            "--label-lists, --test-table and --test-label-lists do not fit together",
            expected="label lists of both tables, or of none",
            fix="give --test-label-lists beside --label-lists and --test-table",
        )
    source = open_source(table, options.source)
    if test is None:
        return source
    return TwoTables(source, open_source(test, replace(options.source, label_lists=test_lists)))


def summary_of(store: TableStore) -> Summary:
    """Return what a prepared data set holds."""
    one = store.connection.execute
    trained = {label for split in (TRAIN, VALIDATION) for label in store.labels(split).indices.tolist()}
    pairs = int(one("SELECT count(*) FROM document_labels").fetchone()[0])
    return Summary(
        {split: store.count(split) for split in SPLITS},
        store.nr_labels,
        pairs,
        dict(one("SELECT reason, count(*) FROM bad_rows GROUP BY reason ORDER BY count(*) DESC").fetchall()),
        int(one("SELECT count(*) - count(DISTINCT key) FROM documents").fetchone()[0]),
        store.nr_labels - len(trained),
        list(store.meta("guesses") or []),
        pairs == store.count(),  # rows without a label are not used
    )


def _sample(source: Source) -> list[list[Any]]:
    found: list[list[Any]] = []
    for row in source.records():
        if isinstance(row, Record):
            found.append(row.cells)
        if len(found) == _SAMPLE:
            break
    return found


def _identity(table: Any, source: Source) -> dict[str, Any]:
    """Return what tells this table from another: not its path, so that a data set survives a move."""
    about: dict[str, Any] = {"kind": source.kind, "columns": source.columns}
    if isinstance(table, str | Path) and Path(table).is_file():
        about |= {"bytes": Path(table).stat().st_size, "checksum": _sampled_checksum(Path(table))}
    else:
        about["rows"] = source.size
    return about


def _sampled_checksum(path: Path) -> str:
    """Return a checksum of a file's size and of its beginning, middle and end: fast for files of any size."""
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        for place in (0, size // 2, max(size - _PIECE, 0)):
            file.seek(place)
            digest.update(file.read(_PIECE))
    return digest.hexdigest()


def _read(source: Source, writer: "_Writer", store: TableStore) -> None:
    """Read all rows; what is complete is committed with the number of rows it comes from."""
    before = int(store.meta("rows_read"))
    if before:
        _LOG.info("resuming after row %s", f"{before:,}")
    with Progress(f"reading {Path(source.name).name}", source.size, source.unit) as progress:
        shown = rows = 0
        for rows, row in enumerate(source.records(), 1):
            if rows <= before:
                continue
            if getattr(source, "in_test", False):
                writer.begin_test()
            writer.add(row)
            if rows % _COMMIT == 0:
                writer.commit(rows)
                resumes_from(f"row {rows:,} of {source.name}")
            if rows % 1024 == 0:
                progress.add(source.done() - shown)
                shown = source.done()
    if rows == before == 0:
        raise InputError(f"{source.name} has no rows", expected="one document per row")
    writer.commit("all")


class _Writer:
    """Rows on their way into the database."""

    def __init__(self, store: TableStore, columns: Columns, label_names: str | Path | None = None) -> None:
        self._store, self._columns = store, columns
        self._names = None if label_names is None else load_label_names(Path(label_names))
        self._test_from: int | None = store.meta("test_from")
        one = store.connection.execute
        self._labels: dict[str, int] = dict(one("SELECT name, id FROM labels").fetchall())
        self._documents: dict[str, int] = {}
        if columns.document is not None:
            self._documents = dict(one("SELECT name, id FROM documents WHERE name IS NOT NULL").fetchall())
        self._next = int(one("SELECT coalesce(max(id), -1) + 1 FROM documents").fetchone()[0])
        self._clear()

    def _clear(self) -> None:
        self._new_documents: list[tuple[int, int, str, int, str | None]] = []
        self._new_labels: list[tuple[int, str]] = []
        self._pairs: list[tuple[int, int]] = []
        self._bad: list[BadRow] = []
        self._features: list[tuple[int, bytes, bytes]] = []

    def begin_test(self) -> None:
        """Make all documents from here on test documents."""
        if self._test_from is None:
            self._test_from = self._next

    def add(self, row: Record | BadRow) -> None:
        if isinstance(row, BadRow):
            self._bad.append(row)
            return
        text, labels = self._columns.text_of(row.cells), self._columns.labels_of(row.cells)
        if self._names is not None:
            known = [int(one) for one in labels if one.isdecimal() and int(one) < len(self._names)]
            if len(known) < len(labels):
                self._bad.append(BadRow(row.line, "a label is no number of a label name", text[:80]))
                return
            labels = [self._names[one] for one in known]
        if not text and self._columns.texts:
            self._bad.append(BadRow(row.line, "no text", " | ".join(map(str, row.cells))[:80]))
            return
        if not labels:
            self._bad.append(BadRow(row.line, "no label", text[:80]))
            return
        document = self._document(row, text)
        for label in labels:
            number = self._labels.get(label)
            if number is None:
                number = self._labels[label] = len(self._labels)
                self._new_labels.append((number, label))
            self._pairs.append((document, number))

    def _document(self, row: Record, text: str) -> int:
        name = None if self._columns.document is None else str(row.cells[self._columns.document])
        if name is not None and name in self._documents:
            return self._documents[name]
        document = self._next
        self._next += 1
        key = text_key(text)
        if not self._columns.texts:
            numbers, amounts = (
                part.tobytes() for part in (row.cells[0][0].astype("<i4"), row.cells[0][1].astype("<f4"))
            )
            self._features.append((document, numbers, amounts))
            key = text_key((numbers + amounts).hex())
        self._new_documents.append((document, row.line, text, key, name))
        if name is not None:
            self._documents[name] = document
        return document

    def commit(self, rows_read: int | str) -> None:
        """Write all rows since the last commit, with the point that reading has come to."""
        with self._store.writing() as write:
            write.executemany(
                "INSERT INTO documents (id, line, text, key, name) VALUES (?, ?, ?, ?, ?)", self._new_documents
            )
            write.executemany("INSERT INTO labels (id, name) VALUES (?, ?)", self._new_labels)
            write.executemany("INSERT OR IGNORE INTO document_labels VALUES (?, ?)", self._pairs)
            write.executemany("INSERT INTO bad_rows VALUES (?, ?, ?)", self._bad)
            write.executemany("INSERT INTO features VALUES (?, ?, ?)", self._features)
            if rows_read == "all":
                write.execute(
                    "UPDATE labels SET documents = counted.n FROM "
                    "(SELECT label, count(*) AS n FROM document_labels GROUP BY label) AS counted WHERE id = label"
                )
            self._store.put_meta({"rows_read": rows_read, "test_from": self._test_from})
        self._clear()


def _refuse_many_bad_rows(store: TableStore, name: str, most: float) -> None:
    """Refuse a table with too many unusable rows: it is probably read in the wrong way."""
    bad = int(store.connection.execute("SELECT count(*) FROM bad_rows").fetchone()[0])
    total = bad + store.count()
    if not bad:
        return
    first = store.connection.execute(
        "SELECT line, reason, start FROM bad_rows ORDER BY rowid LIMIT ?", (_SHOWN,)
    ).fetchall()
    listed = "; ".join(f"line {line:,}: {reason}: {start[:40]!r}" for line, reason, start in first)
    if bad > most * total:
        reasons = Counter(
            dict(store.connection.execute("SELECT reason, count(*) FROM bad_rows GROUP BY reason").fetchall())
        )
        raise InputError(
            f"{name}: {bad:,} of {total:,} rows cannot be used",
            expected=f"at most {most:.0%} (--max-bad-rows)",
            received=", ".join(f"{count:,} × {reason}" for reason, count in reasons.most_common(3)) + f"; {listed}",
            fix="check --separator, --encoding and the columns; or raise --max-bad-rows to leave those rows out",
        )
    _LOG.warning("%s: %s of %s rows are not used: %s", name, f"{bad:,}", f"{total:,}", listed)


def _split(store: TableStore, options: SplitOptions) -> None:
    keys = [key for (key,) in store.connection.execute("SELECT key FROM documents ORDER BY id")]
    if (test_from := store.meta("test_from")) is None:
        chosen = split_documents(keys, store.labels(), options)
    else:  # the source says what is tested on
        share = min(options.validation / (1 - options.test), 0.99)
        chosen = np.full(len(keys), SPLITS.index("test"), np.int8)
        chosen[:test_from] = split_documents(
            keys[:test_from], store.labels()[:test_from], SplitOptions(share, 0.0, options.seed)
        )
    with store.writing() as write:
        write.executemany(
            "UPDATE documents SET split = ? WHERE id = ?", zip(chosen.tolist(), range(len(keys)), strict=True)
        )
        store.put_meta({"splits": asdict(options)})
