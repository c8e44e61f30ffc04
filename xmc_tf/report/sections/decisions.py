"""Decisions: which of the predicted labels does each document get?"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.report.pairs import Pairs
from xmc_tf.report.sections.thresholds import Thresholds


@dataclass(frozen=True, eq=False)
class Decisions:
    """The labels that documents get by one rule, as 0/1 matrices of documents × labels."""

    threshold: float | None  # None: each document gets its best label
    assigned: csr_matrix
    right: csr_matrix
    missed: csr_matrix
    wrong: csr_matrix

    @property
    def rule(self) -> str:
        if self.threshold is None:
            return "each document gets its best label"
        return f"a document gets all labels with a score of at least {self.threshold:g}, the threshold with the best F1"


def is_single_label(truth: csr_matrix) -> bool:
    return int(np.diff(truth.indptr).max(initial=0)) == 1


def decide(truth: csr_matrix, pairs: Pairs, thresholds: Thresholds) -> Decisions:
    """Assign the best label if documents have one label each, else all labels above the best threshold."""
    if is_single_label(truth):
        threshold, which = None, pairs.best_of_documents
    else:
        threshold = thresholds.best.threshold if thresholds.best else 0.0
        which = pairs.scores >= threshold
    right = pairs.chosen(which & pairs.correct)
    missed = (truth - right).tocsr()
    missed.eliminate_zeros()
    return Decisions(threshold, pairs.chosen(which), right, missed, pairs.chosen(which & ~pairs.correct))
