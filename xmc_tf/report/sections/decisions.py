"""Decisions: which of the predicted labels does each document get?"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.report.pairs import Pairs
from xmc_tf.report.sections.thresholds import Thresholds


@dataclass(frozen=True, eq=False)
class Decisions:
    """The labels that documents get by one rule; label tables, confusions and examples are based on it.

    Args:
        threshold: the lowest score that is accepted; None: each document gets its best label.
        assigned: documents × labels, 0/1.
        right: the assigned labels that are true.
        missed: the true labels that are not assigned.
        wrong: the assigned labels that are not true.
    """

    threshold: float | None
    assigned: csr_matrix
    right: csr_matrix
    missed: csr_matrix
    wrong: csr_matrix

    @property
    def rule(self) -> str:
        """The rule in words."""
        if self.threshold is None:
            return "each document gets its best label"
        return f"a document gets all labels with a score of at least {self.threshold:g}, the threshold with the best F1"


def is_single_label(truth: csr_matrix) -> bool:
    """Return whether no document has more than one label, and some have one."""
    return int(np.diff(truth.indptr).max(initial=0)) == 1


def decide(truth: csr_matrix, pairs: Pairs, thresholds: Thresholds) -> Decisions:
    """Assign labels to documents: the best one if documents have one label each, else by the best threshold.

    Args:
        truth: the result of ``as_truth``.
        pairs: the predicted pairs.
        thresholds: their thresholds.
    """
    if is_single_label(truth):
        threshold, which = None, pairs.best_of_documents
    else:
        threshold = thresholds.best.threshold if thresholds.best else 0.0
        which = pairs.scores >= threshold
    right = pairs.chosen(which & pairs.correct)
    missed = (truth - right).tocsr()
    missed.eliminate_zeros()
    return Decisions(threshold, pairs.chosen(which), right, missed, pairs.chosen(which & ~pairs.correct))
