"""The answers of people, kept in one SQLite file as they are given."""

import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from xmc_tf.common.errors import InputError
from xmc_tf.tables.connections import connected, write_error
from xmc_tf.tables.reading.structured import LABELLED
from xmc_tf.tables.splits import text_key

_FORMAT = "xmc_tf.labelling"
_RANDOM = 10  # one in so many texts is held out
_UNSHOWN = 2  # in the column held_out: a text of an audited table without findings
OPEN, DONE, SKIPPED = "open", "done", "skipped"
# `answer` is 1 for accepted labels and -1 for rejected ones: a label counts if more people accepted than rejected it.
# `given` has the labels of an audited table (answer 1), labels that it may lack (0), and why they may be wrong.
_SCHEMA = f"""
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE texts (id INTEGER PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL UNIQUE, place INTEGER NOT NULL,
    held_out INTEGER NOT NULL);
CREATE TABLE answers (text INTEGER NOT NULL, label TEXT NOT NULL, person TEXT NOT NULL, answer INTEGER NOT NULL,
    at TEXT NOT NULL, PRIMARY KEY (text, label, person));
CREATE TABLE visits (number INTEGER PRIMARY KEY, text INTEGER NOT NULL, person TEXT NOT NULL, state TEXT NOT NULL,
    at TEXT NOT NULL, UNIQUE (text, person));
CREATE TABLE given (text INTEGER NOT NULL, label TEXT NOT NULL, answer INTEGER NOT NULL, note TEXT NOT NULL,
    PRIMARY KEY (text, label));
CREATE INDEX places ON texts (held_out, place);
CREATE VIEW {LABELLED} AS SELECT texts.id, name, texts.text, held_out, json_group_array(label) AS labels
    FROM texts JOIN (SELECT text, label FROM (SELECT text, label, answer FROM answers
        UNION ALL SELECT text, label, answer FROM given) GROUP BY text, label HAVING sum(answer) > 0) AS own
    ON own.text = texts.id WHERE texts.id IN (SELECT text FROM visits WHERE state = '{DONE}'
        UNION SELECT text FROM given) GROUP BY texts.id;
INSERT INTO about VALUES ('format', '{_FORMAT}');
"""


class StoredText(NamedTuple):
    id: int
    name: str  # as the table has it, such as the number of the row
    text: str
    held_out: int  # 1 if it is


class LabelStore:
    """Texts to label, and who gave which answer when. Each call is one transaction; threads may call at once."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection, self._lock = path, connection, threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the file, or create it."""
        connection = connected(path, "rwc")
        store = cls(path, connection)
        try:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            connection.execute("PRAGMA synchronous = FULL")  # an answer also survives a loss of power
            found = store._rows("SELECT value FROM about WHERE key = 'format'")
        except sqlite3.DatabaseError:
            found = []
        if found != [(_FORMAT,)]:
            connection.close()
            raise InputError(
                f"{path} is not a file of xmc-tf label", expected="the answers of xmc-tf label, or a new file",
                fix="give another file with -o",
            )  # fmt: skip
        return store

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def _write(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            with self._lock, self._connection:
                self._connection.executemany(statement, rows)
        except sqlite3.DatabaseError as error:
            raise write_error(self.path, error) from error

    def add_texts(self, names: Sequence[str], texts: Sequence[str], known: Sequence[bool]) -> None:
        """Add the texts that are new. A tenth of those that the model does not know is held out, by their content."""
        rows = [
            (name, text, key // _RANDOM, int(key % _RANDOM == 0 and not is_known))
            for name, text, is_known in zip(names, texts, known, strict=True)
            for key in [text_key(text)] if text
        ]  # fmt: skip
        self._write("INSERT OR IGNORE INTO texts (name, text, place, held_out) VALUES (?, ?, ?, ?)", rows)

    def add_audited(
        self, names: Sequence[str], texts: Sequence[str], labels: Sequence[Sequence[str]],
        findings: Mapping[int, Mapping[str, str]],
    ) -> None:  # fmt: skip
        """Add the texts and labels of an audited table.

        Only texts with findings are shown, in the order of ``findings``: what it says about labels, by row.
        """
        places = {row: place for place, row in enumerate(findings)}
        rows = [
            (name, text, places.get(row, row), 0 if row in places else _UNSHOWN)
            for row, (name, text) in enumerate(zip(names, texts, strict=True))
        ]
        self._write("INSERT OR IGNORE INTO texts (name, text, place, held_out) VALUES (?, ?, ?, ?)", rows)
        given = [
            (label, int(label in own), findings.get(row, {}).get(label, ""), text)
            for row, (text, own) in enumerate(zip(texts, labels, strict=True))
            for label in [*own, *(one for one in findings.get(row, {}) if one not in own)]
        ]
        self._write("INSERT OR IGNORE INTO given SELECT id, ?, ?, ? FROM texts WHERE text = ?", given)

    def given(self, text: int) -> dict[str, tuple[int, str]]:
        """Return the labels that an audited table or a finding gives a text: whether it has them, and the finding."""
        rows = self._rows("SELECT label, answer, note FROM given WHERE text = ? ORDER BY rowid", text)
        return {label: (answer, note) for label, answer, note in rows}

    def text(self, number: int) -> StoredText | None:
        found = self._rows("SELECT id, name, text, held_out FROM texts WHERE id = ?", number)
        return StoredText(*found[0]) if found else None

    def answers(self, text: int, person: str) -> dict[str, int]:
        """Return what a person said about the labels of a text: 1 for accepted ones, -1 for rejected ones."""
        return dict(self._rows("SELECT label, answer FROM answers WHERE text = ? AND person = ?", text, person))

    def answer(self, text: int, label: str, person: str, answer: int) -> None:
        """Keep an answer; 0 takes it back."""
        if answer:
            rows = [(text, label, person, answer, _now())]
            self._write("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", rows)
        else:
            self._write("DELETE FROM answers WHERE text = ? AND label = ? AND person = ?", [(text, label, person)])

    def visit(self, text: int, person: str, state: str) -> None:
        """Keep that a person has opened, finished or skipped a text."""
        self._write(
            "INSERT INTO visits (text, person, state, at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (text, person) DO UPDATE SET state = excluded.state, at = excluded.at",
            [(text, person, state, _now())],
        )

    def before(self, person: str, text: int | None) -> int | None:
        """Return the text that a person visited before another one."""
        found = self._rows(
            "SELECT text FROM visits WHERE person = ?1 AND number < "
            "coalesce((SELECT number FROM visits WHERE person = ?1 AND text = ?2), 1 << 60) "
            "ORDER BY number DESC LIMIT 1",
            person, text,
        )  # fmt: skip
        return found[0][0] if found else None

    def opened(self, person: str) -> int | None:
        """Return the text that a person has opened and not finished."""
        found = self._rows("SELECT text FROM visits WHERE person = ? AND state = 'open' ORDER BY number", person)
        return found[0][0] if found else None

    def untouched(self, held_out: bool, person: str | None = None, most: int = 1) -> list[int]:
        """Return texts in random order that nobody, or that one person, has not visited yet."""
        mine = "" if person is None else "AND person = ?3"
        found = self._rows(
            f"SELECT id FROM texts WHERE held_out = ?1 AND NOT EXISTS "
            f"(SELECT 1 FROM visits WHERE text = id {mine}) ORDER BY place LIMIT ?2",
            int(held_out), most, *(() if person is None else (person,)),
        )  # fmt: skip
        return [number for (number,) in found]

    def is_untouched(self, text: int) -> bool:
        return not self._rows("SELECT 1 FROM visits WHERE text = ? LIMIT 1", text)

    def finished(self, person: str | None = None) -> int:
        """Return the number of texts that a person, or anyone, has finished or skipped."""
        mine, values = ("", ()) if person is None else ("AND person = ?", (person,))
        return int(self._rows(f"SELECT count(DISTINCT text) FROM visits WHERE state != 'open' {mine}", *values)[0][0])

    @property
    def nr_texts(self) -> int:
        return int(self._rows("SELECT count(*) FROM texts WHERE held_out < ?", _UNSHOWN)[0][0])

    def labelled(self, held_out: bool | None = None) -> list[tuple[str, str, list[str]]]:
        """Return name, text and labels of the finished texts that have labels."""
        where, values = ("", ()) if held_out is None else (" WHERE held_out = ?", (int(held_out),))
        rows = self._rows(f"SELECT name, text, labels FROM {LABELLED}{where} ORDER BY id", *values)
        return [(name, text, json.loads(labels)) for name, text, labels in rows]

    def disagreements(self, most: int = 100) -> list[tuple[int, str, str, str, str]]:
        """Return labels that some people accepted and others, who finished the same text, did not.

        Each is a text, its beginning, the label, and the people of both sides, separated by commas.
        """
        return self._rows(
            "SELECT v.text, substr(t.text, 1, 80), a.label, "
            "group_concat(DISTINCT CASE WHEN own.answer = 1 THEN v.person END), "
            "group_concat(DISTINCT CASE WHEN own.answer IS NOT 1 THEN v.person END) "
            "FROM (SELECT DISTINCT text, label FROM answers WHERE answer = 1 AND text IN "
            "(SELECT text FROM visits WHERE state = 'done' GROUP BY text HAVING count(*) > 1)) AS a "
            "JOIN texts AS t ON t.id = a.text "
            "JOIN visits AS v ON v.text = a.text AND v.state = 'done' "
            "LEFT JOIN answers AS own ON own.text = v.text AND own.label = a.label AND own.person = v.person "
            "GROUP BY v.text, a.label HAVING sum(own.answer = 1) > 0 AND sum(own.answer IS NOT 1) > 0 "
            "ORDER BY v.text LIMIT ?", most,
        )  # fmt: skip

    def labels(self) -> set[str]:
        """Return the labels of an audited table."""
        return {label for (label,) in self._rows("SELECT DISTINCT label FROM given")}

    def people(self) -> set[str]:
        return {name for (name,) in self._rows("SELECT DISTINCT person FROM visits")}

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
