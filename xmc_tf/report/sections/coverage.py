"""Coverage: which test labels have no training document, so that no model can know them?"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix


@dataclass(frozen=True)
class Coverage:
    """Test labels with and without training documents."""

    labels: int
    unseen_labels: int
    pairs: int  # of test document and true label
    unseen_pairs: int
    unseen_documents: int  # whose labels are all unseen

    @property
    def share_of_labels(self) -> float:
        return self.unseen_labels / max(self.labels, 1)

    @property
    def share_of_pairs(self) -> float:
        return self.unseen_pairs / max(self.pairs, 1)


def measure_coverage(truth: csr_matrix, training: np.ndarray) -> Coverage:
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
