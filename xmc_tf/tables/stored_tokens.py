"""Token ids of the documents of a data set, stored in its database by tokenizer and length of the windows.

tokenizations   id, key: a digest of the tokenizer's checksum, the length of a window, and the number of windows
tokens          tokenization, document, ids, lengths of its windows, numbers of tokens before and after truncation
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xmc_tf.tables.store import TableStore

_MOST = 4  # tokenizations; the oldest are removed
_NARROW, _WIDE = np.dtype("<u2"), np.dtype("<i4")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tokenizations (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS tokens (tokenization INTEGER NOT NULL, document INTEGER NOT NULL, ids BLOB NOT NULL,
    lengths BLOB NOT NULL, total REAL NOT NULL, kept INTEGER NOT NULL, PRIMARY KEY (tokenization, document))
    WITHOUT ROWID;
"""


class DocumentTokens(NamedTuple):
    """The tokens of one document.

    Attributes:
        windows: ids of each window, with special tokens.
        total: number of tokens before truncation, without special tokens; an estimate for very long documents.
        kept: number of tokens after truncation, without special tokens.
    """

    windows: Sequence[np.ndarray]
    total: float
    kept: int


class StoredTokens:
    """The stored tokens of one tokenizer and one way to make windows.

    Example:
        >>> tokens = StoredTokens(store, tokenizer=tokenizer.fingerprint, max_length=128, max_windows=1)
        >>> known = tokens.get(store.ids("train"))

    Args:
        store: the data set.
        tokenizer: checksum of the tokenizer.
        max_length: maximum number of tokens of a window.
        max_windows: maximum number of windows of a document.
    """

    def __init__(self, store: TableStore, *, tokenizer: str, max_length: int, max_windows: int) -> None:
        self.store = store
        about = {"tokenizer": tokenizer, "max_length": max_length, "max_windows": max_windows, "version": 1}
        self._key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]

    def get(self, documents: np.ndarray) -> dict[int, DocumentTokens]:
        """Return the tokens of those of these documents that are stored.

        Args:
            documents: numbers of documents.
        """
        number = self._number()
        if number is None:
            return {}
        rows = self.store.connection.execute(
            "SELECT document, ids, lengths, total, kept FROM tokens "
            "WHERE tokenization = ? AND document IN (SELECT value FROM json_each(?))",
            (number, json.dumps(documents.tolist())),
        )
        return {row[0]: _unpacked(*row[1:]) for row in rows}

    def put(self, tokens: Mapping[int, DocumentTokens]) -> None:
        """Store the tokens of documents.

        Args:
            tokens: tokens by document.

        Raises:
            InputError: the database cannot be written.
            OSError: the disk is full.
        """
        with self.store.writing() as write:
            write.executescript(f"BEGIN; {_SCHEMA}")
            write.execute("INSERT OR IGNORE INTO tokenizations (key) VALUES (?)", (self._key,))
            number = self._number()
            write.executemany(
                "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?, ?)",
                ((number, document, *_packed(one)) for document, one in tokens.items()),
            )
            kept = "SELECT id FROM tokenizations ORDER BY id DESC LIMIT ?"
            write.execute(f"DELETE FROM tokens WHERE tokenization NOT IN ({kept})", (_MOST,))
            write.execute(f"DELETE FROM tokenizations WHERE id NOT IN ({kept})", (_MOST,))

    def _number(self) -> int | None:
        one = self.store.connection.execute
        if one("SELECT 1 FROM sqlite_master WHERE name = 'tokenizations'").fetchone() is None:
            return None
        row = one("SELECT id FROM tokenizations WHERE key = ?", (self._key,)).fetchone()
        return None if row is None else int(row[0])


def _packed(tokens: DocumentTokens) -> tuple[bytes, bytes, float, int]:
    ids = np.concatenate([np.empty(0, np.int32), *tokens.windows])
    dtype = _NARROW if ids.max(initial=0) <= np.iinfo(_NARROW).max else _WIDE
    lengths = np.array([len(window) for window in tokens.windows], _WIDE)
    return ids.astype(dtype).tobytes(), lengths.tobytes(), float(tokens.total), int(tokens.kept)


def _unpacked(ids: bytes, lengths: bytes, total: float, kept: int) -> DocumentTokens:
    bounds = np.cumsum(np.frombuffer(lengths, _WIDE))
    count = int(bounds[-1]) if len(bounds) else 0
    dtype = _WIDE if len(ids) == count * _WIDE.itemsize else _NARROW
    windows = np.split(np.frombuffer(ids, dtype).astype(np.int32), bounds[:-1])
    return DocumentTokens(windows, total, kept)
