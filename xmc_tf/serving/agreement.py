"""Comparison of an exported model with the original by their precision on labeled documents."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.metrics import format_table, measure, percent


class Agreement(NamedTuple):
    ks: Sequence[int]
    model: list[float]
    exported: list[float]
    same_first: float  # share of documents with the same best label

    def table(self, model: str = "model", exported: str = "exported") -> str:
        """Return a table for the terminal, in which losses are in percentage points."""
        pairs = zip(self.model, self.exported, strict=True)
        losses = [f"{100 * (a - b):+.2f}".replace("-0.00", "+0.00") for a, b in pairs]
        rows = [[model, *map(percent, self.model)], [exported, *map(percent, self.exported)], ["loss", *losses]]
        table = format_table(["", *(f"P@{k}" for k in self.ks)], rows)
        return f"{table}\nthe same best label for {percent(self.same_first)} % of the documents"


def compare(truth: csr_matrix, model: csr_matrix, exported: csr_matrix, ks: Sequence[int] = (1, 3, 5)) -> Agreement:
    """Measure both predictions' precision at each k, up to the maximum number of predicted labels per document."""
    most = int(max(np.diff(model.indptr).max(initial=1), np.diff(exported.indptr).max(initial=1)))
    ks = [k for k in ks if k <= most]
    figures = [[measure(truth, one, ks=ks)[0].at("P", k) for k in ks] for one in (model, exported)]
    return Agreement(ks, figures[0], figures[1], float(np.mean(_first(model) == _first(exported))))


def _first(predicted: csr_matrix) -> np.ndarray:
    """Return the best predicted label of each document, or -1 if it has none."""
    some = np.diff(predicted.indptr) > 0
    out = np.full(predicted.shape[0], -1, np.int64)
    out[some] = predicted.indices[predicted.indptr[:-1][some]]
    return out
