"""The pairs of a document and a label that an audit checks."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix


class LabelPairs(NamedTuple):
    """Unique pairs of a document and a label, sorted by document and then by label."""

    rows: np.ndarray  # int64: the document
    labels: np.ndarray  # int64
    nr_labels: int

    @classmethod
    def of(cls, *sources: csr_matrix) -> "LabelPairs":
        """Return the pairs that have an entry in at least one of the matrices of documents × labels."""
        nr_labels = sources[0].shape[1]
        keys = np.unique(np.concatenate([_keys(one) for one in sources]))
        return cls(*np.divmod(keys, nr_labels), nr_labels)

    def matrix(self, nr_documents: int) -> csr_matrix:
        """Return the pairs as a matrix of documents × labels, in which each pair has the entry 1."""
        indptr = np.searchsorted(self.rows, np.arange(nr_documents + 1))
        values = np.ones(len(self.rows), np.float32)
        return csr_matrix((values, self.labels, indptr), shape=(nr_documents, self.nr_labels))

    def values(self, source: csr_matrix) -> np.ndarray:
        """Return the entries of a matrix of documents × labels at the pairs, as float64. Missing entries are 0."""
        keys = _keys(source)
        order = np.argsort(keys, kind="stable")
        keys, wanted = keys[order], self.rows * self.nr_labels + self.labels
        if not len(keys):
            return np.zeros(len(wanted))
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, source.data[order][place], 0.0).astype(np.float64)


def _keys(source: csr_matrix) -> np.ndarray:
    rows = np.repeat(np.arange(source.shape[0], dtype=np.int64), np.diff(source.indptr))
    return rows * source.shape[1] + source.indices


def random_pairs(Y: csr_matrix, per_label: float, seed: int) -> csr_matrix:
    """Draw labels that documents lack, by label frequency: about ``per_label`` for each label that a document has."""
    rng = np.random.default_rng([seed, 0x72616E64])
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    chosen = rng.permutation(np.tile(rows, int(np.ceil(per_label))))[: int(per_label * len(rows))]
    keys = chosen * Y.shape[1] + Y.indices[rng.integers(0, Y.nnz, len(chosen))]
    keys = np.setdiff1d(keys, _keys(Y))
    found = LabelPairs(*np.divmod(keys, Y.shape[1]), Y.shape[1])
    return found.matrix(Y.shape[0])
