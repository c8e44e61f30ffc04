"""Write the rows of a table to its database, and predicted labels to files for spreadsheets and programs."""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from xmc_tf.common.csv_cells import safe_cell
from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import existing_file
from xmc_tf.data.vocabularies import FORMATS, load_vocabulary
from xmc_tf.store.files import atomic_file
from xmc_tf.tables.columns import Columns
from xmc_tf.tables.label_cells import folded
from xmc_tf.tables.reading.delimited import DelimitedFile
from xmc_tf.tables.reading.nested import Flattened
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow
from xmc_tf.tables.reading.structured import JsonLines
from xmc_tf.tables.reading.text_files import opened, opened_text, text_encoding
from xmc_tf.tables.splits import text_key
from xmc_tf.tables.store import TableStore

NO_TEXT, NO_LABEL = "no text", "no label"
_HEADER = ["line", "reason", "start"]
_LABEL_FILES = (".csv", ".tsv", ".jsonl")
_TITLES = ("title", "name", "label")
_IDENTIFIERS = {"a tab": r"\s*\S[^\t]*\t", "a comma": r"""\s*["']?\d+["']?\s*[,;]"""}  # at the start of a line


def list_bad_rows(store: TableStore) -> Path | None:
    """Write the unusable rows to a CSV file beside the data set. Return its path, or None if it was not written."""
    path = store.path.with_name(f"{store.path.stem}.left-out.csv")
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as file:
            if file.readline().strip() != ",".join(_HEADER):
                return None
    rows = store.connection.execute("SELECT line, reason, start FROM bad_rows ORDER BY rowid")
    try:
        with atomic_file(path) as part, part.open("w", encoding="utf-8", errors="replace", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(_HEADER)
            writer.writerows([line, reason, safe_cell(" ".join(start.split()))] for line, reason, start in rows)
    except OSError:
        return None  # the data set lists them too
    return path


def load_label_names(path: Path, language: str | None = None) -> dict[str, str]:
    """Read a unique name for each identifier from lines, JSON lines or a SKOS vocabulary."""
    existing_file(path, "label names")
    if path.suffix.lower() in FORMATS:
        return _distinct([(one.uri, one.names[0]) for one in load_vocabulary(path, language)], path)
    if language is not None:
        problem = f"--names-language {language}: {path} is not a SKOS vocabulary"
        expected = f"a file that ends with {', '.join(FORMATS)}"
        raise InputError(problem, expected=expected, fix="leave out --names-language")
    with opened(path) as file:
        is_json = file.read(4096).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")
    if is_json:
        source = JsonLines(path)
        key = next((name for name in _TITLES if name in source.columns), None)
        if key is None:
            raise InputError(f"{path} has no names", expected=" or ".join(_TITLES), received=", ".join(source.columns))
        at = source.columns.index(key)
        lines = [str(row.cells[at] or "") if isinstance(row, TableRow) else "" for row in source.records()]
    else:
        with opened_text(path, text_encoding(path)) as text:
            lines = text.read().splitlines()
    pairs = [line.split("\t", 1) for line in lines if line.strip()]
    if pairs and all(len(pair) == 2 and pair[0].strip() for pair in pairs) and not is_json:
        return _distinct([(identifier.strip(), name) for identifier, name in pairs], path)
    if not is_json:
        _refuse_identifiers([(number, line) for number, line in enumerate(lines, 1) if line.strip()], path)
    return _distinct([(str(number), line) for number, line in enumerate(lines)], path)


def _refuse_identifiers(lines: list[tuple[int, str]], path: Path) -> None:
    """Raise an error if most lines begin with an identifier: counted by lines, labels would have names of others."""
    for mark, start in _IDENTIFIERS.items():
        others = [(number, line) for number, line in lines if not re.match(start, line)]
        if 2 * len(others) < len(lines):
            number, line = (others or lines)[0]
            raise InputError(
                f"{path}: most lines have {mark} after an identifier" + (f", line {number} has none" if others else ""),
                expected="lines of identifier, tab and name; or one name per line", received=repr(line[:80]),
                fix="separate identifiers and names by tabs in all lines",
            )  # fmt: skip


def names_of_labels(source: TableReader, path: str | Path | None, language: str | None) -> dict[str, str] | None:
    """Return the names of labels from the file ``path``, or those that the table has; None if there are none."""
    if path is not None:
        return load_label_names(Path(path), language)
    return _distinct([*source.label_names.items()], Path(source.name)) if source.label_names else None


def _distinct(found: list[tuple[str, str]], path: Path) -> dict[str, str]:
    """Map each identifier to its name; a name that occurs again gets the identifier appended."""
    seen: set[str] = set()
    names: dict[str, str] = {}
    for identifier, name in found:
        one = " ".join(name.split())
        while not one or one in seen:
            one = f"{one} ({identifier})".strip()
        if identifier in names:
            raise InputError(f"{path} names {identifier!r} twice"[:120], expected="one line for each label")
        names[identifier] = one
        seen.add(one)
    return names


class RowWriter:
    """Writes rows to the database in batches."""

    def __init__(
        self, store: TableStore, columns: Columns, names: Mapping[str, str] | None = None, *, required: bool = True,
        spelled: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """``names`` has the name of each label; if they are ``required``, a row with another label is unusable.

        ``spelled`` has the spellings to prefer of labels that differ only in case or blanks, if they are to be one.
        """
        self._store, self._columns, self._reading = store, columns, store.reading
        self._names, self._required = names, required
        self._test_from: int | None = store.meta("test_from")
        one = store.connection.execute
        self._labels: dict[str, int] = dict(one("SELECT name, id FROM labels").fetchall())
        self._spelled, self._twins = spelled, dict[str, str](store.meta("label_ids") or {})
        if spelled is not None:
            for name in self._labels:
                spelled.setdefault(folded(name), name)
        self._documents: dict[str | int, int] = {}  # several rows may belong to one document
        if columns.merges_rows:
            by = "name" if columns.document is not None else "key"
            self._documents = dict(one(f"SELECT {by}, id FROM documents WHERE {by} IS NOT NULL").fetchall())
        self._next = int(one("SELECT coalesce(max(id), -1) + 1 FROM documents").fetchone()[0])
        self._clear()

    def _clear(self) -> None:
        self._new_documents: list[tuple[int, int, str, int, str | None]] = []
        self._new_labels: list[tuple[int, str]] = []
        self._pairs: list[tuple[int, int]] = []
        self._bad: list[BadRow] = []
        self._features: list[tuple[int, bytes, bytes]] = []

    def begin_test(self) -> None:
        """Mark all documents from here on as test documents."""
        if self._test_from is None:
            self._test_from = self._next

    def add(self, row: TableRow | BadRow) -> None:
        """Add a row: either a document with its labels, or the reason why the row cannot be used."""
        if isinstance(row, BadRow):
            self._bad.append(row)
            return
        if fault := self._columns.fault(row.cells):
            self._bad.append(BadRow(row.line, fault, " | ".join(map(str, row.cells))[:80]))
            return
        text, labels = self._columns.text_of(row.cells), self._columns.labels_of(row.cells)
        start = text
        if self._names is not None and self._required and not self._names.keys() >= set(labels):
            fault = "a label has no name"
        elif not text and self._columns.texts:
            fault, start = NO_TEXT, " | ".join(map(str, row.cells))
        elif not labels:
            fault = NO_LABEL
        if fault:
            self._bad.append(BadRow(row.line, fault, start[:80]))
            return
        if self._names is not None:
            labels = [self._names.get(one, one) for one in labels]
        if self._spelled is not None:
            labels = [self._one_spelling(one, self._spelled) for one in labels]
        document = self._document(row, text)
        for label in labels:
            number = self._labels.get(label)
            if number is None:
                number = self._labels[label] = len(self._labels)
                self._new_labels.append((number, label))
            self._pairs.append((document, number))

    def _one_spelling(self, label: str, spelled: dict[str, str]) -> str:
        found = spelled.setdefault(folded(label), label)
        if found != label:
            self._twins[label] = found
        return found

    def _document(self, row: TableRow, text: str) -> int:
        name: str | int | None = self._columns.document_of(row.cells)
        if self._columns.same_text:
            name = text_key(text)
        if name is not None and name in self._documents:
            return self._documents[name]
        document = self._next
        self._next += 1
        shown = self._columns.id_of(row.cells) or None if self._columns.texts else None
        key = text_key(text)
        if not self._columns.texts:
            numbers, amounts = row.cells[0][0].astype("<i4").tobytes(), row.cells[0][1].astype("<f4").tobytes()
            self._features.append((document, numbers, amounts))
            key = text_key((numbers + amounts).hex())
        self._new_documents.append((document, row.line, text, key, shown))
        if name is not None:
            self._documents[name] = document
        return document

    def commit(self, rows_read: int | str, rows: int | None = None) -> None:
        """Commit the added rows and ``rows_read``: the number so far, or "all" at the end, with the total ``rows``."""
        with self._store.writing() as write:
            new = self._new_documents
            write.executemany("INSERT INTO documents (id, line, text, key, name) VALUES (?, ?, ?, ?, ?)", new)
            if self._store.reading != self._reading:
                raise InputError(
                    f"{self._store.path} is in use: another command has begun to read the table again",
                    expected="one command at a time that reads a table", fix="run this command again",
                )  # fmt: skip
            write.executemany("INSERT INTO labels (id, name) VALUES (?, ?)", self._new_labels)
            write.executemany("INSERT OR IGNORE INTO document_labels VALUES (?, ?)", self._pairs)
            write.executemany("INSERT INTO bad_rows VALUES (?, ?, ?)", self._bad)
            write.executemany("INSERT INTO features VALUES (?, ?, ?)", self._features)
            if rows_read == "all":
                write.execute(
                    "UPDATE labels SET documents = counted.n FROM "
                    "(SELECT label, count(*) AS n FROM document_labels GROUP BY label) AS counted WHERE id = label"
                )
            about: dict[str, Any] = {"rows_read": rows_read, "rows": rows, "test_from": self._test_from}
            if rows_read == "all" and self._names is not None:
                about["label_ids"] = {key: name for key, name in self._names.items() if name in self._labels}
            if self._spelled is not None:
                about["label_ids"] = self._twins
            self._store.put_meta(about)
        self._clear()


class LabelFile:
    """A file with the best labels of each row of a table, written atomically. A CSV has the dialect of ``source``."""

    def __init__(self, path: Path, kept: Sequence[str], most: int, source: TableReader | None = None) -> None:
        if path.suffix.lower() not in _LABEL_FILES:
            raise InputError(f"-o {path} has an unknown extension", expected=f"one of {', '.join(_LABEL_FILES)}")
        self.path, self._kept, self._most = path, list(kept), most
        self._separator, self._encoding = "\t" if path.suffix.lower() == ".tsv" else ",", "utf-8"
        source = source.source if isinstance(source, Flattened) else source
        if isinstance(source, DelimitedFile) and path.suffix.lower() == ".csv":
            self._separator = ";" if source.separator == ";" else ","
            self._encoding = "utf-8-sig" if source.separator == ";" or source.encoding == "utf-8-sig" else "utf-8"
        self._placing = ExitStack()

    def __enter__(self) -> Self:
        part = self._placing.enter_context(atomic_file(self.path))
        file = part.open("w", encoding=self._encoding, errors="replace", newline="")
        self._file = self._placing.enter_context(file)
        self._csv: Any = None
        if self.path.suffix.lower() != ".jsonl":
            self._csv = csv.writer(self._file, delimiter=self._separator)
            ranked = [f"{what} {rank}" for rank in range(1, self._most + 1) for what in ("label", "score")]
            self._csv.writerow(["line", *map(self._safe, self._kept), *ranked])
        return self

    def write(self, line: int, cells: Sequence[Any], labels: Sequence[tuple[str, float]]) -> None:
        """Write the result for one line of the table: the cells to keep, and the labels with scores, best first."""
        if self._csv is None:
            content: dict[str, Any] = {"line": line}
            content |= {name: value for name, value in zip(self._kept, cells, strict=True) if name not in content}
            content |= {"labels": [name for name, _ in labels], "scores": [round(score, 6) for _, score in labels]}
            self._file.write(json.dumps(content, ensure_ascii=False, default=str) + "\n")
            return
        found = [cell for name, score in labels for cell in (self._safe(name), f"{score:.6g}")]
        empty = [""] * (2 * (self._most - len(labels)))
        self._csv.writerow([line, *map(self._safe, cells), *found, *empty])

    def _safe(self, cell: Any) -> str:
        return safe_cell(cell, self._separator)

    def __exit__(self, *error: Any) -> None:
        self._placing.__exit__(*error)
