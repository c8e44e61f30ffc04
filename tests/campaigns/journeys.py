"""Train on a table, correct it, train again: is the second model of the corrected table?

``python -m tests.campaigns.journeys`` takes a table of each kind, and starts commands as a new user does at a terminal;
``--of CSV DataFrame`` takes only some; ``--encoder DIR`` trains an encoder too. Corrections keep the times of files.
It prints what was old for each table, and at the end one line of JSON; every count but ``journeys`` should be 0.

After a correction, the command says that it has read the table again and what changed, and the model answers as one
that is trained on the corrected table alone. The same command once more says that nothing changed; the answers stay.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from tests.jobs.conftest import TOPICS, documents, write_table
from xmc_tf.data import save_matrix

Row = tuple[str, list[str]]
NAMES = list(TOPICS)
ROWS = [(f"{text} {row}", labels) for row, (text, labels) in enumerate(documents(240, 1))]
TIME = 10**18  # of change, of all files
PROBES = [TOPICS[name] for name in NAMES]
FRAME = """
import sys, json
from xmc_tf.tables.preparation import prepare
prepare(json.load(open(sys.argv[1])), sys.argv[2]).close()
"""


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
    (folder / "frame.json").write_text(json.dumps(frame))
    _run([sys.executable, "-c", FRAME, str(folder / "frame.json"), str(folder / "frame.sqlite")])
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


JOURNEYS = {
    "CSV": Journey(lambda folder, rows: write_table(folder / "table.csv", rows)),
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


def travel(name: str, folder: Path, more: Sequence[str] = ()) -> list[str]:
    """Go one way; return what was old, in words."""
    journey, problems = JOURNEYS[name], []
    flags = [flag.replace("{folder}", str(folder / "mine")) for flag in journey.flags]

    def trained(rows: Sequence[Row], place: str = "mine") -> tuple[str, list[str]]:
        (folder / place).mkdir(exist_ok=True)
        table = journey.make(folder / place, rows)
        for path in (folder / place).rglob("*"):
            if path.suffix not in (".sqlite", ".db") and "model" not in path.parts:
                os.utime(path, ns=(TIME, TIME))
        own = [flag.replace(str(folder / "mine"), str(folder / place)) for flag in flags]
        _, said = _run(
            [sys.executable, "-m", "xmc_tf", "train", str(table), "-m", str(folder / place / "model"), *own, *more]
        )
        found, _ = _run([sys.executable, "-m", "xmc_tf", "predict", "-m", str(folder / place / "model"), "-k", "2",
                      *(word for probe in PROBES for word in ("-q", probe))])  # fmt: skip
        return said, found.splitlines()

    _, before = trained(ROWS)
    said, after = trained(corrected(ROWS))
    if journey.said is not None and f"data set: read again ({journey.said} changed)" not in said:
        problems.append(f"the command does not say that the {journey.said} changed")
    if after == before:
        problems.append("the model answers as before the correction")
    if after != trained(corrected(ROWS), "new")[1]:
        problems.append("the model answers other than one of the corrected table alone")
    said, again = trained(corrected(ROWS))
    if journey.said is not None and "data set: reused (unchanged)" not in said:
        problems.append("the unchanged table is read again")
    if again != after:
        problems.append("the answers change without a change of the table")
    return problems


def _run(command: Sequence[str]) -> tuple[str, str]:
    """Return what a command prints as its result, and what it says meanwhile, which depends on how long it takes."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout, done.stderr


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--of", nargs="+", choices=JOURNEYS, default=list(JOURNEYS), help="the tables")
    parser.add_argument("--encoder", metavar="DIR", help="train an encoder too, from this folder")
    arguments = parser.parse_args(argv)
    more = [] if arguments.encoder is None else ["--model-shortcut", arguments.encoder, "--max-steps", "10"]
    counts = Counter(journeys=0, old=0)
    for name in arguments.of:
        folder = Path(tempfile.mkdtemp(prefix="journey-"))
        try:
            found = travel(name, folder, more)
        except RuntimeError as error:
            found = [str(error)]
        shutil.rmtree(folder)
        counts.update(journeys=1, old=bool(found))
        print(f"{name}: {'; '.join(found) or 'nothing was old'}", flush=True)
    print(json.dumps(counts))
    return int(counts["old"] > 0)


if __name__ == "__main__":
    sys.exit(main())
