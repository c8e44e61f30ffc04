"""Metrics for data in which each document has exactly one label: accuracy, F1 and a confusion matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as smat

from xmc_tf.common.errors import InputError
from xmc_tf.metrics.measures import check_shapes
from xmc_tf.metrics.ranking import NO_LABEL, as_truth, count_labels, mark_hits, top_labels
from xmc_tf.metrics.table import format_table, percent

_CONFUSIONS, _NAME_LENGTH = 5, 32  # maximum numbers of confusions and characters that are shown


@dataclass(frozen=True)
class MistakenLabel:
    """A true label, the label that is wrongly predicted instead, and how often this happens."""

    true: int
    predicted: int
    documents: int
    share: float  # of the documents of the true label


@dataclass(frozen=True, eq=False)
class SingleLabelMeasures:
    """Metrics of the best predicted label of each document."""

    documents: int
    accuracy: float
    micro_f1: float  # equal to the accuracy if each document has a prediction
    macro_f1: float  # mean over the labels that occur in the documents
    matrix: smat.csr_matrix  # true label × predicted label, numbers of documents

    def confusions(self, most: int = 10) -> list[MistakenLabel]:
        """Return up to ``most`` confusions, the most frequent first."""
        entries = self.matrix.tocoo()
        wrong = np.flatnonzero((entries.row != entries.col) & (entries.data > 0))
        order = wrong[np.lexsort((entries.col[wrong], entries.row[wrong], -entries.data[wrong]))][:most]
        of_label = np.asarray(self.matrix.sum(axis=1)).ravel()
        return [
            MistakenLabel(
                int(entries.row[at]), int(entries.col[at]), int(entries.data[at]),
                float(entries.data[at] / max(of_label[entries.row[at]], 1)),
            )
            for at in order
        ]  # fmt: skip

    def to_json(self) -> dict[str, float]:
        return {"accuracy": self.accuracy, "micro-F1": self.micro_f1, "macro-F1": self.macro_f1}

    def lines(self, names: Sequence[str] | None, baseline: float | None = None) -> list[str]:
        """Format the metrics as lines. ``baseline`` is the accuracy of always predicting the most frequent label."""
        if baseline is None:
            baseline = float(self.matrix.sum(axis=1).max()) / self.documents
        rows = [
            ["accuracy", percent(self.accuracy)], ["macro F1", percent(self.macro_f1)],
            ["micro F1", percent(self.micro_f1)], ["most frequent label", percent(baseline)],
        ]  # fmt: skip
        out = format_table(["", "%"], rows, indent="  ").splitlines()
        if confused := self.confusions(_CONFUSIONS):

            def shown(label: int) -> str:
                name = names[label] if names else str(label)
                return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"

            table = [
                [shown(one.true), shown(one.predicted), f"{one.documents:,}", f"{one.share:.0%}"] for one in confused
            ]
            head = ["true label", "predicted instead", "documents", "of the label"]
            out += ["", "most confused:", "", *format_table(head, table, left=2, indent="  ").splitlines()]
        return out


def is_single_label(truth: smat.spmatrix) -> bool:
    """Return whether each document has exactly one label."""
    rows = as_truth(truth)
    return rows.shape[0] > 0 and bool((np.diff(rows.indptr) == 1).all())


def measure_single_label(truth: smat.spmatrix, predictions: smat.spmatrix) -> SingleLabelMeasures:
    """Compare the best predicted label of each document with its true label; a missing prediction counts as wrong."""
    check_shapes(truth, predictions, "the prediction")
    true = as_truth(truth)
    counts = np.diff(true.indptr)
    if (counts != 1).any():
        row = int(np.flatnonzero(counts != 1)[0])
        raise InputError(
            f"document {row:,} has {counts[row]} labels", expected="one label per document",
            fix="use evaluate, which measures several labels per document",
        )  # fmt: skip
    top, labels = top_labels(predictions, 1), true.shape[1]
    given = top[:, 0] != NO_LABEL
    pairs = (np.ones(given.sum(), np.int64), (true.indices[given], top[given, 0]))
    of = count_labels(true, top, mark_hits(true, top))
    right, documents = int(of.found.sum()), len(top)
    return SingleLabelMeasures(
        documents, right / documents, 2 * right / (documents + int(given.sum())), float(of.f1[of.true > 0].mean()),
        smat.csr_matrix(pairs, shape=(labels, labels)),
    )  # fmt: skip
