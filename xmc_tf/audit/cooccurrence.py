"""Evidence from labels that occur together. A document is never evidence for its own labels."""

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.audit.pairs import LabelPairs

_BLOCK = 500_000  # pairs at a time, to bound memory
_DOUBT = 3.0  # added to a label's number of documents, because a share of few documents is unreliable
_LEAST_ODDS = -6.0
COMPANY = ("share of a label", "odds of a label", "share of this label", "mean lift", "lift", "other labels")
"""How much a document's other labels suggest a label: the largest share of another label's documents that have the
label, and its log-odds; the largest share of the label's documents that have another label; the mean and the sum of
the log lifts (how much more often than by chance two labels occur together); the number of other labels."""


class Companions:
    """Counts how often labels occur together in documents."""

    def __init__(self, Y: csr_matrix) -> None:
        Y = csr_matrix(Y).astype(np.float32)
        self.Y = Y
        self.documents = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float64)
        together = csr_matrix(Y.T @ Y)
        together.sort_indices()
        self._together = together
        rows = np.repeat(np.arange(together.shape[0], dtype=np.int64), np.diff(together.indptr))
        self._keys = rows * together.shape[1] + together.indices

    def likely(self, most: int) -> csr_matrix:
        """Return a matrix of documents × labels with the ``most`` labels that each document's labels suggest best."""
        share = csr_matrix(self._together, copy=True)
        share.data = (share.data - 1) / np.repeat(self.documents + _DOUBT, np.diff(share.indptr))
        share.data[share.data < 0.05] = 0
        share.eliminate_zeros()
        return largest_of_rows(csr_matrix(self.Y @ share), most)

    def evidence(self, pairs: LabelPairs) -> np.ndarray:
        """Return the evidence from the other labels of each pair's document, as float64 ``[pairs, COMPANY]``."""
        out = np.zeros((len(pairs.rows), len(COMPANY)))
        for begin in range(0, len(pairs.rows), _BLOCK):
            some = slice(begin, begin + _BLOCK)
            out[some] = self._evidence(pairs.rows[some], pairs.labels[some])
        return out

    def closest(self, document: int, label: int) -> tuple[int, int, int] | None:
        """Return the document's other label that suggests ``label`` most, or None if there is no such label.

        Two counts of other documents follow it: those with both labels, and those with the returned label.
        """
        own = self.Y.indices[self.Y.indptr[document] : self.Y.indptr[document + 1]]
        others = own[own != label]
        both = self._both(np.full(len(others), label), others) - (len(others) < len(own))
        every = self.documents[others] - 1
        if not len(others) or not every.max():
            return None
        best = int(np.argmax(both / (every + _DOUBT)))
        return int(others[best]), int(both[best]), int(every[best])

    def _both(self, labels: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the number of documents with both labels, for each pair of labels."""
        wanted = labels * np.int64(self.Y.shape[1]) + others
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[place] == wanted, self._together.data[place], 0.0)

    def _evidence(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        Y, total, size = self.Y, self.Y.shape[0] - 1, len(rows)
        counts = np.diff(Y.indptr)[rows].astype(np.int64)
        pair = np.repeat(np.arange(size), counts)
        start = np.concatenate([[0], np.cumsum(counts)[:-1]])
        other = Y.indices[np.arange(len(pair)) - np.repeat(start, counts) + np.repeat(Y.indptr[rows], counts)]
        own = other == labels[pair]
        has = np.bincount(pair[own], minlength=size) > 0
        pair, other = pair[~own], other[~own]
        label = labels[pair]
        both = self._both(label, other) - has[pair]
        of_other, of_label = self.documents[other] - 1, self.documents[label] - has[pair]
        share = both / (of_other + _DOUBT)
        odds = np.log((both + 0.5) / (of_other - both + 0.5))
        chance = of_other * of_label / max(total, 1)
        prior = np.minimum(chance, 1.0) + 0.05
        lift = np.log((both + prior) / (chance + prior))
        number = np.bincount(pair, minlength=size)
        largest, best, back = np.zeros(size), np.full(size, _LEAST_ODDS), np.zeros(size)
        np.maximum.at(largest, pair, share)
        np.maximum.at(best, pair, odds)
        np.maximum.at(back, pair, both / (of_label + _DOUBT))
        summed = np.bincount(pair, lift, minlength=size)
        return np.column_stack([largest, best, back, summed / np.maximum(number, 1), summed, number])


def largest_of_rows(matrix: csr_matrix, most: int) -> csr_matrix:
    """Return the matrix with only the ``most`` largest entries of each row."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    order = order[np.arange(len(order)) - matrix.indptr[rows[order]] < most]
    counts = np.bincount(rows[order], minlength=matrix.shape[0])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return csr_matrix((matrix.data[order], matrix.indices[order], indptr), shape=matrix.shape)
