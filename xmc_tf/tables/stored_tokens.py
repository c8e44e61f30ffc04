"""Token ids of texts, kept in the database of a data set, so that a later training does not tokenize the texts again.

tokenizers   id, key: a tokenizer and the number of tokens that it keeps of a text
text_tokens  tokenizer, text: a hash of it, ids, kept: how many, total: number of tokens before truncation
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data.tokens import Tokens
from xmc_tf.tables.store import TableStore

_LOG = logging.getLogger(__name__)
_MOST = 4  # tokenizers; the oldest are removed
_NARROW, _WIDE = np.dtype("<u2"), np.dtype("<i4")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tokenizers (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS text_tokens (tokenizer INTEGER NOT NULL, text BLOB NOT NULL, ids BLOB NOT NULL,
    kept INTEGER NOT NULL, total REAL NOT NULL, PRIMARY KEY (tokenizer, text)) WITHOUT ROWID;
"""


class StoredTokens:
    """The tokens of texts in a data set, by tokenizer, length and content of the text: a ``TokenMemory``."""

    def __init__(self, path: Path, *, writes: bool) -> None:
        self.path, self.writes = path, writes
        self.nr_tokenized = 0  # number of texts that were not found

    def get(self, tokenizer: str, limit: int, texts: Sequence[str]) -> dict[str, Tokens]:
        """Return the tokens of those texts that are stored."""
        store = TableStore.open(self.path)
        number = _number(store, tokenizer, limit)
        if number is None:
            return {}
        by_hash = {_hash(text): text for text in texts}
        marks = ",".join("?" * len(by_hash))
        query = f"SELECT text, ids, kept, total FROM text_tokens WHERE tokenizer = ? AND text IN ({marks})"
        rows = store.connection.execute(query, (number, *by_hash))
        return {
            by_hash[text]: (np.frombuffer(ids, _WIDE if len(ids) == 4 * kept else _NARROW).tolist(), total)
            for text, ids, kept, total in rows
        }

    def put(self, tokenizer: str, limit: int, found: Mapping[str, Tokens]) -> None:
        """Store the tokens of texts. If that fails, log a warning: they only save time."""
        self.nr_tokenized += len(found)
        if not self.writes:
            return
        try:
            store = TableStore.open(self.path, write=True)
            with store.writing() as write:
                write.executescript(f"BEGIN; {_SCHEMA}")
                write.execute("INSERT OR IGNORE INTO tokenizers (key) VALUES (?)", (_key(tokenizer, limit),))
                number = _number(store, tokenizer, limit)
                rows = ((number, _hash(text), *_packed(*tokens)) for text, tokens in found.items())
                write.executemany("INSERT OR REPLACE INTO text_tokens VALUES (?, ?, ?, ?, ?)", rows)
                kept = "SELECT id FROM tokenizers ORDER BY id DESC LIMIT ?"
                write.execute(f"DELETE FROM text_tokens WHERE tokenizer NOT IN ({kept})", (_MOST,))
                write.execute(f"DELETE FROM tokenizers WHERE id NOT IN ({kept})", (_MOST,))
        except (InputError, OSError) as error:
            reason = str(error).partition("\n")[0]
            _LOG.warning("tokens are not stored, so the next training computes them again: %s", reason)
            self.writes = False

    def log_summary(self) -> None:
        """Log how many texts were tokenized."""
        if self.nr_tokenized:
            _LOG.info("%s texts tokenized; %s keeps their tokens", f"{self.nr_tokenized:,}", self.path)
        else:
            _LOG.info("no text was tokenized: %s has the tokens of all", self.path)


def _key(tokenizer: str, limit: int) -> str:
    return f"{tokenizer} {limit}"


def _number(store: TableStore, tokenizer: str, limit: int) -> int | None:
    one = store.connection.execute
    if one("SELECT 1 FROM sqlite_master WHERE name = 'tokenizers'").fetchone() is None:
        return None
    row = one("SELECT id FROM tokenizers WHERE key = ?", (_key(tokenizer, limit),)).fetchone()
    return None if row is None else int(row[0])


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=16).digest()


def _packed(ids: Sequence[int], total: float) -> tuple[bytes, int, float]:
    array = np.array(ids, _WIDE)
    narrow = array.max(initial=0) <= np.iinfo(_NARROW).max
    return array.astype(_NARROW if narrow else _WIDE).tobytes(), len(array), float(total)
