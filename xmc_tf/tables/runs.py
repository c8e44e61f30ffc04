"""Record training runs in the database of their data set, with the predictions for its test documents."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.tables.store import TableStore

_COLUMNS = ("id", "began", "seconds", "command", "model")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY AUTOINCREMENT, began TEXT NOT NULL, seconds REAL NOT NULL,
    command TEXT NOT NULL, model TEXT NOT NULL, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS run_predictions (run INTEGER NOT NULL, document INTEGER NOT NULL, labels BLOB NOT NULL,
    scores BLOB NOT NULL, PRIMARY KEY (run, document)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Run:
    """One training run on a data set."""

    began: str  # in UTC, as ISO 8601
    seconds: float
    command: str
    model: str  # its folder
    kind: str  # "XR-Linear" or "XR-Transformer"
    parameters: dict[str, Any] = field(default_factory=dict)  # by dotted name
    metrics: dict[str, float] = field(default_factory=dict)  # of the test documents, from 0 to 1
    durations: dict[str, float] = field(default_factory=dict)  # of parts of the work, in seconds
    chosen: list[str] = field(default_factory=list)  # sentences about the choice of settings
    trials: list[dict[str, Any]] = field(default_factory=list)  # of each change: setting, value, score, seconds, kept
    curve: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # learning curves: (step, value) pairs
    versions: dict[str, str] = field(default_factory=dict)  # of Python and packages
    documents: dict[str, int] = field(default_factory=dict)  # number by split
    labels: int = 0  # number of labels
    data: str = ""  # a hash of what decides the data set, which may be read or divided again
    id: int = 0  # 0 before it is recorded


def now() -> str:
    """Return the current UTC date and time in ISO 8601 format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def record_run(store: TableStore, run: Run, predicted: csr_matrix | None = None) -> int:
    """Record a run and return its number. ``predicted`` has the scores of the test documents; None: not tested."""
    content = {name: value for name, value in asdict(run).items() if name not in _COLUMNS}
    data = json.dumps([store.meta(name) for name in ("source", "columns", "splits")])
    content["data"] = hashlib.blake2b(data.encode(), digest_size=16).hexdigest()
    with store.writing() as write:
        write.executescript(f"BEGIN; {_SCHEMA}")
        done = write.execute(
            "INSERT INTO runs (began, seconds, command, model, content) VALUES (?, ?, ?, ?, ?)",
            (run.began, run.seconds, run.command, run.model, json.dumps(content)),
        )
        number = int(done.lastrowid or 0)
        if predicted is not None:
            labels, scores = predicted.indices.astype("<i4"), predicted.data.astype("<f4")
            bounds = zip(store.ids("test").tolist(), predicted.indptr, predicted.indptr[1:], strict=False)
            rows = ((number, one, labels[a:b].tobytes(), scores[a:b].tobytes()) for one, a, b in bounds)
            write.executemany("INSERT INTO run_predictions VALUES (?, ?, ?, ?)", rows)
    return number


def runs_of(store: TableStore) -> list[Run]:
    """Return all recorded runs, oldest first."""
    if not _has_runs(store):
        return []
    return [_run(row) for row in store.connection.execute("SELECT * FROM runs ORDER BY id")]


def run_of(store: TableStore, number: int) -> Run:
    """Return the run with this number, or raise InputError if the data set has no such run."""
    row = None
    if _has_runs(store) and 0 <= number < 1 << 63:  # numbers of SQLite
        row = store.connection.execute("SELECT * FROM runs WHERE id = ?", (number,)).fetchone()
    if row is None:
        known = [run.id for run in runs_of(store)]
        raise InputError(
            f"{store.path} has no run {number}",
            expected="one of " + ", ".join(map(str, known[-20:])) if known else "a data set with recorded runs",
            fix=f"list the runs: xmc-tf runs {store.path}",
        )
    return _run(row)


def delete_run(store: TableStore, number: int) -> Run:
    """Delete a run from the database and return it; its model folder is kept."""
    run = run_of(store, number)
    with store.writing() as write:
        write.execute("DELETE FROM runs WHERE id = ?", (number,))
        write.execute("DELETE FROM run_predictions WHERE run = ?", (number,))
    return run


def predictions_of(store: TableStore, number: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (document, labels, scores) for each test document of a run; the best labels come first."""
    run_of(store, number)
    query = "SELECT document, labels, scores FROM run_predictions WHERE run = ? ORDER BY document"
    for document, labels, scores in store.connection.execute(query, (number,)):
        yield document, np.frombuffer(labels, "<i4"), np.frombuffer(scores, "<f4")


def _has_runs(store: TableStore) -> bool:
    return store.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone() is not None


def _run(row: Sequence[Any]) -> Run:
    content = parse_json(row[len(_COLUMNS)], of=f"run {row[0]}")
    known = {one.name for one in fields(Run)}
    own = {name: value for name, value in content.items() if name in known}
    return Run(**dict(zip(_COLUMNS, row, strict=False)), **own)


def flat_parameters(nested: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested parameters to dotted names: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``."""
    if isinstance(nested, dict):
        items: Any = nested.items()
    elif isinstance(nested, list | tuple) and any(isinstance(one, dict) for one in nested):
        items = enumerate(nested)
    else:
        return {prefix: nested}
    out: dict[str, Any] = {}
    for name, value in items:
        if not str(name).startswith("__"):
            out |= flat_parameters(value, f"{prefix}.{name}" if prefix else str(name))
    return out
