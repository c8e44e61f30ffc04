"""Texts of a data set whose tokens are stored in its database: a second run tokenizes nothing."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data.reading import Reading
from xmc_tf.encoder.truncation import TruncationCounter
from xmc_tf.tables.store import StoredTexts, TableStore
from xmc_tf.tables.stored_tokens import DocumentTokens, StoredTokens

if TYPE_CHECKING:
    from xmc_tf.encoder import TextTokenizer

_LOG = logging.getLogger(__name__)


@dataclass
class TokenCount:
    """The documents whose tokens were needed.

    Args:
        computed: number of documents that were tokenized.
        read: number of documents whose tokens were stored.
        storing: whether tokens are stored; set to False when the database cannot be written.
    """

    computed: int = 0
    read: int = 0
    storing: bool = True

    def log(self, path: Path) -> None:
        """Log the numbers.

        Args:
            path: the data set.
        """
        _LOG.info("%s documents tokenized; tokens of %s read from %s", f"{self.computed:,}", f"{self.read:,}", path)


class TokenizedTexts(StoredTexts):
    """Texts of a data set with their tokens; ``TextTokenizer.windows`` takes these instead of tokenizing.

    Args:
        path: the database.
        ids: the documents, ascending.
        count: counts of all texts of a run.
    """

    def __init__(self, path: Path, ids: np.ndarray, count: TokenCount) -> None:
        super().__init__(path, ids)
        self.count_of_tokens = count

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> "TokenizedTexts": ...

    def __getitem__(self, index: int | slice) -> "str | TokenizedTexts":
        if isinstance(index, slice):
            return TokenizedTexts(self.path, self.ids[index], self.count_of_tokens)
        return super().__getitem__(index)

    def rows(self, rows: np.ndarray) -> "TokenizedTexts":
        """Return some of the texts; they are counted among all of them only.

        Args:
            rows: their places, ascending.
        """
        return TokenizedTexts(self.path, self.ids[rows], TokenCount(storing=self.count_of_tokens.storing))

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenizedTexts, (self.path, self.ids, self.count_of_tokens)

    def tokenized(
        self, tokenizer: "TextTokenizer", reading: Reading, truncation: TruncationCounter | None
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the windows of all documents, as ``TextTokenizer.windows`` does; tokenize what is not stored.

        Args:
            tokenizer: the tokenizer.
            reading: how texts become windows.
            truncation: counts the windows and the truncated tokens.
        """
        count = self.count_of_tokens
        store = TableStore.open(self.path, write=count.storing)
        try:
            stored = StoredTokens(
                store, tokenizer=tokenizer.fingerprint, max_length=reading.max_length, max_windows=reading.max_windows
            )
            known = stored.get(self.ids)
            missing = np.array([one for one in self.ids.tolist() if one not in known], np.int64)
            count.read, count.computed = count.read + len(known), count.computed + len(missing)
            if len(missing):
                new = _tokenize(StoredTexts(self.path, missing), tokenizer, reading)
                known |= new
                if count.storing:
                    self._put(stored, new)
        finally:
            store.close()
        documents = [known[one] for one in self.ids.tolist()]
        if truncation is not None:
            for one in documents:
                truncation.add(one.total, one.kept, len(one.windows))
        windows = [window for one in documents for window in one.windows]
        return windows, np.array([len(one.windows) for one in documents], np.int32)

    def _put(self, stored: StoredTokens, new: dict[int, DocumentTokens]) -> None:
        try:
            stored.put(new)
        except (InputError, OSError) as error:  # they only save time
            _LOG.warning("tokens are not stored, and computed again next time: %s", str(error).partition("\n")[0])
            self.count_of_tokens.storing = False


class _EachDocument(TruncationCounter):
    """The counts of each document on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[tuple[float, int]] = []

    def add(self, tokens: float, kept: int, windows: int = 1) -> None:
        self.counts.append((tokens, kept))


def _tokenize(texts: StoredTexts, tokenizer: "TextTokenizer", reading: Reading) -> dict[int, DocumentTokens]:
    each = _EachDocument()
    windows, counts = tokenizer.windows(list(texts), reading, each)
    bounds = np.concatenate([[0], np.cumsum(counts)]).tolist()
    return {
        document: DocumentTokens(windows[begin:end], total, kept)
        for document, begin, end, (total, kept) in zip(
            texts.ids.tolist(), bounds, bounds[1:], each.counts, strict=False
        )
    }
