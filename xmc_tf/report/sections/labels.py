"""Labels: how often is each label found, and how often is it wrong?"""

from dataclasses import dataclass

import numpy as np

from xmc_tf.report.sections.decisions import Decisions

SHOWN_LABELS = 10_000


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Counts of documents by label; every array has one number per label."""

    training: np.ndarray | None
    true: np.ndarray
    assigned: np.ndarray
    right: np.ndarray
    order: np.ndarray  # all labels, those of most test documents first

    @property
    def precision(self) -> np.ndarray:
        return _ratio(self.right, self.assigned)

    @property
    def recall(self) -> np.ndarray:
        return _ratio(self.right, self.true)

    @property
    def f1(self) -> np.ndarray:
        return _ratio(2 * self.right, self.true + self.assigned)

    @property
    def shown(self) -> np.ndarray:
        """The labels of the page; the CSV file has all of them."""
        return self.order[:SHOWN_LABELS]


def count_per_label(decisions: Decisions, truth_frequency: np.ndarray, training: np.ndarray | None) -> LabelTable:
    labels = len(truth_frequency)
    assigned = np.bincount(decisions.assigned.indices, minlength=labels)
    right = np.bincount(decisions.right.indices, minlength=labels)
    order = np.lexsort((np.arange(labels), -assigned, -truth_frequency))
    return LabelTable(training, truth_frequency, assigned, right, order)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
