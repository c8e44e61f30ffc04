"""Documents as an encoder reads them: one window of tokens, or several whose embeddings are combined."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

TRUNCATE = "truncate"
COMBINATIONS = ("mean", "max")


@dataclass(frozen=True)
class Reading:
    """A way to make windows of documents, and one embedding of the windows' embeddings.

    A window is a part of a document that the encoder reads at once; a short document is one window.

    Args:
        max_length: maximum number of tokens of a window, including special ones.
        max_windows: maximum number of windows of a document; the tokens behind them are ignored. 1: documents are
            truncated.
        combine: "mean" or "max" of the windows' embeddings, number by number.
    """

    max_length: int
    max_windows: int = 1
    combine: str = "mean"

    @classmethod
    def of(cls, max_length: int, long_texts: str, max_windows: int) -> Self:
        """Return the reading that the options ``truncate_length``, ``long_texts`` and ``max_windows`` describe."""
        return cls(max_length) if long_texts == TRUNCATE else cls(max_length, max_windows, long_texts)

    @property
    def long_texts(self) -> str:
        """The option ``long_texts``: "truncate", "mean" or "max"."""
        return TRUNCATE if self.max_windows == 1 else self.combine


def window_bounds(tokens: int, limit: int, max_windows: int) -> list[tuple[int, int]]:
    """Return begin and end of each window of a document: as few as possible, of equal length but for one token.

    Example:
        >>> window_bounds(10, limit=4, max_windows=16)
        [(0, 3), (3, 6), (6, 10)]
        >>> window_bounds(10, limit=4, max_windows=2)
        [(0, 4), (4, 8)]

    Args:
        tokens: number of tokens of the document, without special ones.
        limit: maximum number of tokens of a window, without special ones.
        max_windows: maximum number of windows.
    """
    count = min(max(1, -(-tokens // limit)), max_windows)
    kept = min(tokens, count * limit)
    cuts = [number * kept // count for number in range(count + 1)]
    return list(pairwise(cuts))


def combine_windows(vectors: np.ndarray, splits: np.ndarray, combine: str) -> np.ndarray:
    """Return one embedding per document.

    Args:
        vectors: the embeddings of the windows, document by document.
        splits: the first window of each document, then the number of windows; no document is without windows.
        combine: "mean" or "max".
    """
    if not len(vectors):
        return vectors
    if combine == "max":
        return np.maximum.reduceat(vectors, splits[:-1], axis=0)
    counts = np.diff(splits).astype(np.float32)
    return np.add.reduceat(vectors, splits[:-1], axis=0) / counts[:, None]
