"""Layouts of precision and recall: a table, or the exact lines of PECOS."""

from typing import Any

import numpy as np
import scipy.sparse as smat

from xmc_tf.metrics.measures import check_shapes, measure
from xmc_tf.metrics.ranking import as_truth, mark_hits, top_labels
from xmc_tf.metrics.table import format_table, percent

PECOS_TOPK = 10
DOCUMENTS = 1 << 16  # documents per block, to bound memory


def precision_and_recall(predicted: smat.csr_matrix, truth: Any, layout: str = "table") -> str:
    """Return precision and recall as a table; with the layout "pecos", as the lines that PECOS's commands print."""
    if layout == "pecos":
        return pecos_lines(predicted, truth)
    most = int(np.diff(predicted.indptr).max(initial=1))
    ks = [k for k in (1, 3, 5, 10, 20, 100) if k <= most] or [1]
    overall, *_ = measure(truth, predicted, ks=ks)
    rows = [
        [name, *(percent(overall.at(short, k)) for k in ks)] for short, name in (("P", "precision"), ("R", "recall"))
    ]
    return format_table(["", *(f"@{k}" for k in ks)], rows)


def pecos_lines(
    predicted: smat.spmatrix | np.ndarray, truth: Any, topk: int = PECOS_TOPK, name: str = "the prediction"
) -> str:
    """Return precision and recall at 1 to ``topk`` in the three lines that PECOS prints, with its rounding."""
    check_shapes(truth, predicted, name)
    true = as_truth(truth)
    hits = np.cumsum(mark_hits(true, top_labels(predicted, topk, name)), axis=1)
    labels = np.maximum(np.diff(true.indptr), 1)[:, None]
    recall = np.zeros(topk)
    for begin in range(0, len(hits), DOCUMENTS):
        rows = slice(begin, begin + DOCUMENTS)
        # Document by document, because numpy's pairwise sum would round differently.
        recall = np.add.accumulate(np.vstack([recall, hits[rows] / labels[rows]]), axis=0)[-1]
    precision = hits.sum(axis=0) / true.shape[0] / np.arange(1, topk + 1)
    lines = [
        f"{key:7}= " + " ".join(f"{100 * value:4.2f}" for value in values)
        for key, values in (("prec", precision), ("recall", recall / true.shape[0]))
    ]
    return "\n".join(["==== evaluation results ====", *lines])
