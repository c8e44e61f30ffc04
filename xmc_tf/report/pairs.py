from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix


@dataclass(frozen=True, eq=False)
class Pairs:
    """All predicted pairs of document and label, each with its score and whether it is true."""

    documents: np.ndarray  # of each pair, ascending
    labels: np.ndarray
    scores: np.ndarray
    correct: np.ndarray
    true: int  # true pairs, predicted or not
    nr_documents: int
    nr_labels: int

    @classmethod
    def of(cls, truth: csr_matrix, predicted: csr_matrix) -> "Pairs":
        """Return the pairs of a prediction; ``truth`` is the result of ``as_truth``."""
        scores = predicted.tocsr(copy=True)
        scores.sum_duplicates()
        documents = np.repeat(np.arange(scores.shape[0], dtype=np.int64), np.diff(scores.indptr))
        keys = documents * scores.shape[1] + scores.indices
        true_rows = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr))
        true_keys = true_rows * truth.shape[1] + truth.indices
        place = np.searchsorted(true_keys, keys)
        correct = np.zeros(len(keys), np.bool_)
        inside = place < len(true_keys)
        correct[inside] = true_keys[place[inside]] == keys[inside]
        return cls(documents, scores.indices, scores.data.astype(np.float64), correct, truth.nnz, *scores.shape)

    def chosen(self, which: np.ndarray) -> csr_matrix:
        """Return the pairs of a mask as a 0/1 matrix, documents × labels."""
        ones = np.ones(int(which.sum()), np.float32)
        shape = (self.nr_documents, self.nr_labels)
        return csr_matrix((ones, (self.documents[which], self.labels[which])), shape=shape)

    @property
    def best_of_documents(self) -> np.ndarray:
        """The mask of the pair with the highest score of each document; the lowest label among equals."""
        order = np.lexsort((self.labels, -self.scores, self.documents))
        first = np.ones(len(order), np.bool_)
        first[1:] = self.documents[order][1:] != self.documents[order][:-1]
        mask = np.zeros(len(order), np.bool_)
        mask[order[first]] = True
        return mask
