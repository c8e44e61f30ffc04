"""Label statistics: how often each label is found or wrong, confused labels, and labels without training documents."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix, diags

from xmc_tf.report.inputs import ReportInputs
from xmc_tf.report.sections.scores import Decisions

SHOWN_LABELS = 10_000
SHOWN_PAIRS = 50
MATRIX_SIZE = 50
_DOCUMENTS = 200_000  # maximum number of documents counted: pairs grow with the square of a document's errors
_NAMED_AFTER = 2  # labels in the name of a cluster


@dataclass(frozen=True, eq=False)
class LabelTable:
    """The number of documents of each label. Every array has one entry per label."""

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
        """The labels that the page shows. The CSV file contains all labels."""
        return self.order[:SHOWN_LABELS]


def count_per_label(decisions: Decisions, truth_frequency: np.ndarray, training: np.ndarray | None) -> LabelTable:
    labels = len(truth_frequency)
    assigned = np.bincount(decisions.assigned.indices, minlength=labels)
    right = np.bincount(decisions.right.indices, minlength=labels)
    order = np.lexsort((np.arange(labels), -assigned, -truth_frequency))
    return LabelTable(training, truth_frequency, assigned, right, order)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)


@dataclass(frozen=True)
class Coverage:
    """The numbers of test labels, label pairs and documents, and of those that are unseen in training."""

    labels: int
    unseen_labels: int
    pairs: int  # of test document and true label
    unseen_pairs: int
    unseen_documents: int  # whose labels are all unseen

    @property
    def share_of_pairs(self) -> float:
        return self.unseen_pairs / max(self.pairs, 1)


def measure_coverage(truth: csr_matrix, training: np.ndarray) -> Coverage:
    occurs = np.bincount(truth.indices, minlength=truth.shape[1]) > 0
    unseen = training[truth.indices] == 0
    known = np.add.reduceat(np.append(~unseen, False), truth.indptr[:-1]) if truth.nnz else np.zeros(0)
    documents = int(((np.diff(truth.indptr) > 0) & (known == 0)).sum()) if truth.nnz else 0
    labels = int(occurs.sum()), int((occurs & (training == 0)).sum())
    return Coverage(*labels, int(truth.nnz), int(unseen.sum()), documents)


@dataclass(frozen=True)
class ConfusedPair:
    """A true label that was missed, and a wrong label that the same documents got instead."""

    true: int
    assigned: int
    documents: int


@dataclass(frozen=True, eq=False)
class Confusion:
    pairs: tuple[ConfusedPair, ...]
    kind: str  # of the matrix: "labels", "clusters", or "" without one
    names: tuple[str, ...]
    matrix: np.ndarray  # documents by true (row) and assigned (column) label; correct ones are on the diagonal
    documents: int  # that were counted


def find_confusion(inputs: ReportInputs, decisions: Decisions) -> Confusion:
    """Find the most confused pairs of labels, and the confusion matrix (of clusters if there are many labels)."""
    rows = slice(0, _DOCUMENTS)
    confused = (decisions.missed[rows].T @ decisions.wrong[rows]).tocoo()
    order = np.lexsort((confused.col, confused.row, -confused.data))[:SHOWN_PAIRS]
    pairs = tuple(
        ConfusedPair(int(confused.row[i]), int(confused.col[i]), round(float(confused.data[i]))) for i in order
    )
    right = np.bincount(decisions.right[rows].indices, minlength=inputs.nr_labels)
    group, kind, names = _groups(inputs, decisions)
    documents = min(inputs.nr_documents, _DOCUMENTS)
    if not names:
        return Confusion(pairs, "", (), np.zeros((0, 0), np.int64), documents)
    member = csr_matrix(
        (np.ones((group >= 0).sum()), (np.flatnonzero(group >= 0), group[group >= 0])),
        shape=(inputs.nr_labels, len(names)),
    )
    # Confusions within a cluster are errors of labels, not of clusters, and count as correct here.
    counted = member.T @ (confused.tocsr() + diags(right.astype(np.float64))) @ member
    return Confusion(pairs, kind, names, np.rint(counted.toarray()).astype(np.int64), documents)


def _groups(inputs: ReportInputs, decisions: Decisions) -> tuple[np.ndarray, str, tuple[str, ...]]:
    """Return each label's row in the confusion matrix (-1: none), the kind of the rows, and their names."""
    frequency = np.bincount(inputs.truth.indices, minlength=inputs.nr_labels)
    assigned = np.bincount(decisions.assigned.indices, minlength=inputs.nr_labels)
    seen = np.flatnonzero(frequency + assigned)
    group = np.full(inputs.nr_labels, -1)
    if 1 < len(seen) <= MATRIX_SIZE:
        group[seen] = np.arange(len(seen))
        return group, "labels", tuple(inputs.label_name(label) for label in seen.tolist())
    tree = None if inputs.model is None or not _same_labels(inputs) else inputs.model.tree
    if tree is None:
        return group, "", ()
    level = max((t for t, size in enumerate(tree.level_sizes[:-1]) if size <= MATRIX_SIZE), default=0)
    if tree.level_sizes[level] < 2:
        return group, "", ()
    names = []
    for node in range(tree.level_sizes[level]):
        labels = tree.labels_under(level, node)
        group[labels] = node
        often = labels[np.lexsort((labels, -frequency[labels]))][:_NAMED_AFTER]
        more = f" + {len(labels) - len(often):,}" if len(labels) > len(often) else ""
        names.append(", ".join(inputs.label_name(int(label)) for label in often) + more)
    return group, "clusters", tuple(names)


def _same_labels(inputs: ReportInputs) -> bool:
    """Return whether report and model have the same labels, judged by names or, without names, by their number."""
    assert inputs.model is not None
    if inputs.model.names and inputs.names:
        return list(inputs.model.names) == list(inputs.names)
    return inputs.model.tree.nr_labels == inputs.nr_labels
