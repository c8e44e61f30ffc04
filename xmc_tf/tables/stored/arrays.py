"""Arrays and files in the database of a data set: what a second run need not compute again.

stored   key, part, content: pieces of at most 32 MB, because SQLite limits the size of a value
"""

import hashlib
import io
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import parse_json
from xmc_tf.tables.store import TableStore

_LOG = logging.getLogger(__name__)
_PIECE = 32 << 20
_MOST_BYTES = 2 << 30  # of one entry; larger ones are computed again
_MOST_ENTRIES = 8  # the oldest are removed
_SCHEMA = """
CREATE TABLE IF NOT EXISTS stored (key TEXT NOT NULL, part INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (key, part));
CREATE TABLE IF NOT EXISTS stored_entries (entry TEXT PRIMARY KEY, number INTEGER NOT NULL, keys TEXT NOT NULL);
"""


def entry_key(**about: Any) -> str:
    """Return the key of an entry: a digest of all that its content depends on."""
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:32]


def put_entry(store: TableStore, entry: str, content: dict[str, bytes]) -> bool:
    """Store named contents as one entry; return False, with a log line, if they cannot be stored.

    What is stored here only saves time, so that a full disk or a locked database is no reason to stop.

    Args:
        store: the data set.
        entry: result of :func:`entry_key`.
        content: bytes by name.
    """
    size = sum(map(len, content.values()))
    if size > _MOST_BYTES:
        _LOG.info("not stored in %s, because they are too large: %s MB", store.path, f"{size >> 20:,}")
        return False
    try:
        _put(store, entry, content)
    except (InputError, OSError) as error:
        _LOG.warning("not stored, and computed again next time: %s", str(error).partition("\n")[0])
        return False
    return True


def _put(store: TableStore, entry: str, content: dict[str, bytes]) -> None:
    with store.writing() as write:
        write.executescript(f"BEGIN; {_SCHEMA}")
        number = write.execute("SELECT coalesce(max(number), 0) + 1 FROM stored_entries").fetchone()[0]
        _remove(store, entry)
        for name, value in content.items():
            pieces = range(0, max(len(value), 1), _PIECE)
            write.executemany(
                "INSERT INTO stored VALUES (?, ?, ?)",
                ((f"{entry}/{name}", part, value[at : at + _PIECE]) for part, at in enumerate(pieces)),
            )
        write.execute("INSERT INTO stored_entries VALUES (?, ?, ?)", (entry, number, json.dumps(list(content))))
        for (old,) in write.execute(
            "SELECT entry FROM stored_entries ORDER BY number DESC LIMIT -1 OFFSET ?", (_MOST_ENTRIES,)
        ).fetchall():
            _remove(store, old)


def get_entry(store: TableStore, entry: str) -> dict[str, bytes] | None:
    """Return the contents of an entry by name; None if there is none."""
    one = store.connection.execute
    if one("SELECT 1 FROM sqlite_master WHERE name = 'stored_entries'").fetchone() is None:
        return None
    row = one("SELECT keys FROM stored_entries WHERE entry = ?", (entry,)).fetchone()
    if row is None:
        return None
    return {
        name: b"".join(
            piece for (piece,) in one("SELECT content FROM stored WHERE key = ? ORDER BY part", (f"{entry}/{name}",))
        )
        for name in parse_json(row[0], of=f"{store.path}: {entry}", top=list)
    }


def _remove(store: TableStore, entry: str) -> None:
    store.connection.execute("DELETE FROM stored WHERE key GLOB ?", (f"{entry}/*",))
    store.connection.execute("DELETE FROM stored_entries WHERE entry = ?", (entry,))


def array_bytes(array: np.ndarray) -> bytes:
    """Return an array as the bytes of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def bytes_array(content: bytes) -> np.ndarray:
    """Return the array of :func:`array_bytes`."""
    return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))


def matrix_content(matrix: csr_matrix) -> dict[str, bytes]:
    """Return the parts of a sparse matrix, for :func:`put_entry`."""
    return {
        "shape": array_bytes(np.array(matrix.shape, np.int64)),
        "indptr": array_bytes(matrix.indptr),
        "indices": array_bytes(matrix.indices),
        "data": array_bytes(matrix.data),
    }


def content_matrix(content: dict[str, bytes]) -> csr_matrix:
    """Return the matrix of :func:`matrix_content`."""
    data, indices, indptr = (bytes_array(content[name]) for name in ("data", "indices", "indptr"))
    return csr_matrix((data, indices, indptr), shape=tuple(bytes_array(content["shape"]).tolist()))


def folder_content(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, for :func:`put_entry`."""
    return {f"file:{path.name}": path.read_bytes() for path in sorted(folder.iterdir())}


def write_folder(content: dict[str, bytes], folder: Path) -> None:
    """Write the files of :func:`folder_content` to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in content.items():
        if name.startswith("file:"):
            (folder / Path(name.removeprefix("file:")).name).write_bytes(value)
