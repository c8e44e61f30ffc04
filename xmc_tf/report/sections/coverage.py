"""Coverage: which test labels can the model not know, because no training document has them?"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix


@dataclass(frozen=True)
class Coverage:
    """Test labels with and without training documents.

    Args:
        labels: number of labels of the test documents.
        unseen_labels: number of them without a training document.
        pairs: number of pairs of test document and true label.
        unseen_pairs: number of them whose label has no training document: no model can find them.
        unseen_documents: number of test documents all of whose labels are unseen.
    """

    labels: int
    unseen_labels: int
    pairs: int
    unseen_pairs: int
    unseen_documents: int

    @property
    def share_of_labels(self) -> float:
        """Share of the test labels without a training document."""
        return self.unseen_labels / max(self.labels, 1)

    @property
    def share_of_pairs(self) -> float:
        """Share of the true labels of all test documents that have no training document."""
        return self.unseen_pairs / max(self.pairs, 1)


def measure_coverage(truth: csr_matrix, training: np.ndarray) -> Coverage:
    """Count the test labels without training documents.

    Args:
        truth: the result of ``as_truth``.
        training: number of training documents of each label.
    """
    occurs = np.bincount(truth.indices, minlength=truth.shape[1]) > 0
    unseen = training[truth.indices] == 0
    known = np.add.reduceat(np.append(~unseen, False), truth.indptr[:-1]) if truth.nnz else np.zeros(0)
    has_labels = np.diff(truth.indptr) > 0
    return Coverage(
        int(occurs.sum()),
        int((occurs & (training == 0)).sum()),
        int(truth.nnz),
        int(unseen.sum()),
        int((has_labels & (known == 0)).sum()) if truth.nnz else 0,
    )
