"""A table is corrected and trained on again: the model answers as one of the corrected table, for each kind of table.

Corrections keep the times of files. The same command once more says that nothing has changed.
"""

import json
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.jobs.conftest import TOPICS, documents, write_table
from xmc_tf.data import save_matrix
from xmc_tf.predict import main as predict
from xmc_tf.tables.preparation import prepare
from xmc_tf.train import main as train

pytestmark = pytest.mark.full

Row = tuple[str, list[str]]
NAMES = list(TOPICS)
ROWS = [(f"{text} {row}", labels) for row, (text, labels) in enumerate(documents(240, 1))]
TIME = 10**18  # of change, of all files
PROBES = [TOPICS[name] for name in NAMES]


def _nested(folder: Path, rows: Sequence[Row]) -> Path:
    lines = [{"doc": {"title": text}, "labels": [{"name": name, "id": 1} for name in labels]} for text, labels in rows]
    (folder / "nested.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "nested.jsonl"


def _annif(folder: Path, rows: Sequence[Row]) -> Path:
    (folder / "corpus").mkdir(exist_ok=True)
    for row, (text, labels) in enumerate(rows):
        (folder / "corpus" / f"{row:03d}.txt").write_text(text)
        (folder / "corpus" / f"{row:03d}.tsv").write_text("".join(f"<{name}>\t{name}\n" for name in labels))
    return folder / "corpus"


def _pecos(folder: Path, rows: Sequence[Row]) -> Path:
    (folder / "pecos").mkdir(exist_ok=True)
    (folder / "pecos" / "X.trn.txt").write_text("".join(f"{text}\n" for text, _ in rows))
    Y = np.array([[name in labels for name in NAMES] for _, labels in rows], np.float32)
    save_matrix(folder / "pecos" / "Y.trn.npz", csr_matrix(Y))
    (folder / "pecos" / "labels.txt").write_text("\n".join(NAMES) + "\n")
    return folder / "pecos"


def _sqlite(folder: Path, rows: Sequence[Row]) -> Path:
    with closing(sqlite3.connect(folder / "source.db")) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE IF NOT EXISTS documents (text, label)")
        database.execute("DELETE FROM documents")
        database.executemany("INSERT INTO documents VALUES (?, ?)", [(text, labels[0]) for text, labels in rows])
    return folder / "source.db"


def _frame(folder: Path, rows: Sequence[Row]) -> Path:
    """Prepare a dictionary of columns in Python; its data set is what is trained on."""
    frame = {"text": [text for text, _ in rows], "label": [labels for _, labels in rows]}
    prepare(frame, folder / "frame.sqlite").close()
    return folder / "frame.sqlite"


def _names_file(folder: Path, rows: Sequence[Row]) -> Path:
    """Write the labels as numbers, which stay; the correction is that of two names."""
    names = NAMES if rows == ROWS else [NAMES[1], NAMES[0], *NAMES[2:]]
    width = max(map(len, NAMES))
    (folder / "names.tsv").write_text("".join(f"{at}\t{name:<{width}}\n" for at, name in enumerate(names)))
    return write_table(folder / "numbers.csv", [(text, [str(NAMES.index(labels[0]))]) for text, labels in ROWS])


@dataclass(frozen=True)
class Journey:
    make: Callable[[Path, Sequence[Row]], Path]  # writes a table of these rows
    flags: Sequence[str] = ()  # of the command; ``{folder}`` stands for that of the table
    said: str | None = "labels"  # what has changed; None: the command trains on a data set and does not say


# The first compares settings, too; the others try none.
JOURNEYS = {
    "CSV": Journey(lambda folder, rows: write_table(folder / "table.csv", rows), ("--effort", "balanced")),
    "nested JSON lines": Journey(_nested, ("--text-column", "doc.title", "--label-column", "labels[].name")),
    "Annif's folder": Journey(_annif),
    "PECOS's folder": Journey(_pecos),
    "SQLite with a log": Journey(_sqlite),
    "DataFrame": Journey(_frame, said=None),
    "names file": Journey(_names_file, ("--names-file", "{folder}/names.tsv"), said="labels, names"),
}  # fmt: skip


def corrected(rows: Sequence[Row]) -> list[Row]:
    """Return the rows after a person has seen that two labels were confused, in all rows."""
    other = {NAMES[0]: NAMES[1], NAMES[1]: NAMES[0]}
    return [(text, [other.get(name, name) for name in labels]) for text, labels in rows]


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_correction_reaches_the_model(name, tmp_path, caplog, capsys):
    journey = JOURNEYS[name]
    caplog.set_level(logging.INFO)

    def trained(rows: Sequence[Row], place: str = "mine") -> tuple[str, str]:
        folder = tmp_path / place
        folder.mkdir(exist_ok=True)
        table = journey.make(folder, rows)
        for path in folder.rglob("*"):
            if path.suffix not in (".sqlite", ".db") and "model" not in path.parts:
                os.utime(path, ns=(TIME, TIME))
        caplog.clear()
        flags = ["--effort", "fast", *(flag.format(folder=folder) for flag in journey.flags)]
        train([str(table), "-m", str(folder / "model"), *flags])
        capsys.readouterr()
        predict(["-m", str(folder / "model"), "-k", "2", *(word for probe in PROBES for word in ("-q", probe))])
        return caplog.text, capsys.readouterr().out

    _, before = trained(ROWS)
    said, after = trained(corrected(ROWS))
    assert journey.said is None or f"data set: read again ({journey.said} changed)" in said
    assert after != before
    assert after == trained(corrected(ROWS), "new")[1]
    said, again = trained(corrected(ROWS))
    assert journey.said is None or "data set: reused (unchanged)" in said
    assert again == after
