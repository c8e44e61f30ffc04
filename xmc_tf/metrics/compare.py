"""Compare several systems on the same true labels; the result is text or JSON."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as smat

from xmc_tf.metrics.measures import MEASURES, FrequencyBuckets, Measures, measure
from xmc_tf.metrics.ranking import as_truth
from xmc_tf.metrics.table import format_table, percent

# Metrics that share a table.
_TABLES = (("P", "R", "nDCG"), ("PSP", "PSnDCG"), ("micro-F1", "macro-F1"), ("P-near", "P-sibling"))


@dataclass(frozen=True)
class MeasuredSystem:
    """The name and the metrics of one system."""

    name: str
    overall: Measures
    buckets: list[Measures]  # those that have true labels


@dataclass(frozen=True)
class Comparison:
    """The metrics of several systems on the same documents."""

    ks: tuple[int, ...]  # the cut-offs to show; the systems may be measured at more
    documents: int
    labels: int
    labels_per_document: float  # mean number of true labels
    occurs_in: str  # where label frequencies were counted: "training" or "test"
    systems: list[MeasuredSystem]

    @property
    def measures(self) -> list[str]:
        """The names of the metrics that were computed, in the order of ``MEASURES``."""
        return [name for name in MEASURES if name in self.systems[0].overall.values]

    def to_text(self, width: int = 100) -> str:
        """Format the comparison as tables for a terminal that is ``width`` characters wide."""
        parts = [
            f"{self.documents:,} documents, {self.labels:,} labels, "
            f"{self.labels_per_document:.2f} true labels per document; all figures in percent"
        ]
        for table in _TABLES:
            columns = [(name, k) for name in self.measures if name in table for k in self.ks]
            header = ["", *(f"{name}@{k}" for name, k in columns)]
            rows = [[s.name, *(percent(s.overall.at(*column)) for column in columns)] for s in self.systems]
            if columns:
                parts.append(format_table(header, rows, width=width))
        if self.systems[0].buckets:
            parts.append(self._bucket_text(width))
        return "\n\n".join(parts)

    def _bucket_text(self, width: int) -> str:
        k = self.ks[-1]
        rows = []
        # Sorted by bucket, so that the values to compare are below each other.
        for number, first in enumerate(self.systems[0].buckets):
            for place, system in enumerate(self.systems):
                about = [first.bucket, f"{first.labels:,}"] if place == 0 else ["", ""]
                values = [percent(system.buckets[number].at(name, k)) for name in self.measures]
                rows.append([*about, system.name, *values])
        header = ["occurs", "labels", "", *(f"{name}@{k}" for name in self.measures)]
        title = f"By frequency of the label in the {self.occurs_in} documents:"
        return title + "\n\n" + format_table(header, rows, left=3, width=width)

    def to_json(self) -> dict[str, Any]:
        """Convert the comparison to a JSON object. Values are shares from 0 to 1, or null if undefined."""
        return {
            "documents": self.documents,
            "labels": self.labels,
            "labels_per_document": self.labels_per_document,
            "k": list(self.ks),
            "bucket_frequency": self.occurs_in,
            "systems": [
                {
                    "name": system.name,
                    **self._flat(system.overall),
                    "buckets": [
                        {"occurs": one.bucket, "labels": one.labels, "documents": one.documents, **self._flat(one)}
                        for one in system.buckets
                    ],
                }
                for system in self.systems
            ],
        }

    def _flat(self, measures: Measures) -> dict[str, float | None]:
        flat = {f"{name}@{k}": measures.at(name, k) for name in self.measures for k in self.ks}
        return {key: None if math.isnan(value) else value for key, value in flat.items()}


def compare(
    truth: smat.spmatrix | np.ndarray, predictions: Sequence[tuple[str, smat.spmatrix | np.ndarray]],
    ks: Sequence[int], *, bounds: Sequence[int] = (10, 50), training_frequency: np.ndarray | None = None,
    gains: np.ndarray | None = None, broader: smat.csr_matrix | None = None, details: bool = False,
) -> Comparison:  # fmt: skip
    """Measure several predictions, given as pairs (name, scores), against the true labels.

    ``bounds`` are the upper bounds of the buckets of label frequency. Frequencies are counted in the true labels unless
    ``training_frequency`` is passed. With ``details``, metrics are computed at every k from 1, for the report's charts.
    """
    true = as_truth(truth)
    occurs = np.bincount(true.indices, minlength=true.shape[1])
    frequency = occurs if training_frequency is None else training_frequency
    buckets = FrequencyBuckets.by_frequency(frequency, bounds) if bounds else None
    measured = range(1, max(ks) + 1) if details else ks
    systems = []
    for name, prediction in predictions:
        overall, *parts = measure(
            true, prediction, measured, buckets=buckets, gains=gains, broader=broader, name=name
        )  # fmt: skip
        systems.append(MeasuredSystem(name, overall, [part for part in parts if part.labels]))
    return Comparison(
        ks=tuple(sorted(set(ks))), documents=true.shape[0], labels=true.shape[1],
        labels_per_document=true.nnz / true.shape[0], occurs_in="test" if training_frequency is None else "training",
        systems=systems,
    )  # fmt: skip
