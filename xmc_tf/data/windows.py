"""Split long documents into windows of tokens, and combine the embeddings or scores of the windows."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

TRUNCATE = "truncate"


@dataclass(frozen=True)
class WindowOptions:
    """The rules for splitting documents into windows (the units the encoder reads) and combining window embeddings."""

    max_length: int  # tokens of a window, including special ones
    max_windows: int = 1  # of a document; the tokens behind them are ignored
    combine: str = "mean"  # or "max"

    @classmethod
    def of(cls, max_length: int, long_texts: str, max_windows: int) -> Self:
        """Create an instance from the options ``truncate_length``, ``long_texts`` and ``max_windows``."""
        return cls(max_length) if long_texts == TRUNCATE else cls(max_length, max_windows, long_texts)

    @property
    def long_texts(self) -> str:
        """The value of the option ``long_texts``: "truncate", "mean" or "max"."""
        return TRUNCATE if self.max_windows == 1 else self.combine


class WindowEmbeddings(NamedTuple):
    """The embeddings of windows, and the document to which each window belongs."""

    vectors: np.ndarray  # float32 [windows, dim], document by document
    splits: np.ndarray  # the first window of each document, then the number of windows; each document has a window

    @classmethod
    def of_single_windows(cls, vectors: np.ndarray) -> Self:
        """Return the embeddings of documents that have one window each."""
        return cls(vectors, np.arange(len(vectors) + 1))

    @property
    def nr_documents(self) -> int:
        return len(self.splits) - 1

    def of_documents(self, combine: str) -> np.ndarray:
        """Return one embedding per document: the mean or maximum over its windows (``combine``: "mean" or "max")."""
        if len(self.vectors) == self.nr_documents:
            return self.vectors
        if combine == "max":
            return np.maximum.reduceat(self.vectors, self.splits[:-1], axis=0)
        counts = np.diff(self.splits).astype(np.float32)
        return np.add.reduceat(self.vectors, self.splits[:-1], axis=0) / counts[:, None]


def window_bounds(tokens: int, limit: int, max_windows: int) -> list[tuple[int, int]]:
    """Return the bounds of up to ``max_windows`` windows: as few as possible, whose lengths differ by at most one."""
    count = min(max(1, -(-tokens // limit)), max_windows)
    kept = min(tokens, count * limit)
    return list(pairwise(number * kept // count for number in range(count + 1)))


def max_over_windows(scores: csr_matrix, splits: np.ndarray, only_topk: int) -> csr_matrix:
    """Reduce the scores of windows to documents: each node's maximum, of which the ``only_topk`` best are kept."""
    nr_documents = len(splits) - 1
    if nr_documents == scores.shape[0]:
        return scores
    documents = np.repeat(np.arange(nr_documents), np.diff(scores.indptr[splits]))
    order = np.lexsort((-scores.data, scores.indices, documents))
    documents, nodes, values = documents[order], scores.indices[order], scores.data[order]
    largest = np.ones(len(order), bool)  # the first of each document and node
    largest[1:] = (documents[1:] != documents[:-1]) | (nodes[1:] != nodes[:-1])
    documents, nodes, values = documents[largest], nodes[largest], values[largest]
    order = np.lexsort((nodes, -values, documents))
    counts = np.bincount(documents, minlength=nr_documents)
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = order[place < only_topk]
    indptr = np.concatenate([[0], np.cumsum(np.minimum(counts, only_topk))])
    return csr_matrix((values[order], nodes[order], indptr), shape=(nr_documents, scores.shape[1]))
