"""Evaluate predictions, and format precision and recall as a table or as the lines that PECOS prints."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as smat

from xmc_tf.common.errors import InputError
from xmc_tf.data import load_matrix
from xmc_tf.metrics.measures import Measures, check_shapes, measure
from xmc_tf.metrics.ranking import as_truth, mark_hits, top_labels
from xmc_tf.metrics.table import format_table, percent

PECOS_TOPK = 10
DOCUMENTS = 1 << 16  # documents per block, to bound memory


def inverse_propensity(frequency: np.ndarray, documents: int, a: float = 0.55, b: float = 1.5) -> np.ndarray:
    """Return the weight of a hit of each label: large for rare labels, close to 1 for frequent ones.

    A label of n out of N training documents has ``1 / p = 1 + C (n + b)^-a`` with ``C = (ln N - 1)(b + 1)^a``. The
    Extreme Classification Repository uses a = 0.5 and b = 0.4 for Wikipedia, and a = 0.6 and b = 2.6 for Amazon.
    """
    if documents < 1:
        raise InputError("propensities need training documents", expected="at least 1")
    if not np.isfinite(a):
        raise InputError("the propensity parameter A is not finite", expected="a number like 0.55", received=str(a))
    if not 0 < b < np.inf:
        raise InputError("the propensity parameter B is out of range", expected="a number above 0", received=str(b))
    # With fewer than three documents, ln N - 1 and so the weights would be negative.
    c = max(np.log(documents) - 1.0, 0.0) * (b + 1.0) ** a
    return 1.0 + c * (np.asarray(frequency, dtype=np.float64) + b) ** -a


def load_prediction(path: str | Path, name: str = "the prediction") -> smat.spmatrix | np.ndarray:
    """Load a prediction like `load_matrix`, but do not warn about unsorted labels, as rows are sorted by score."""
    logger = logging.getLogger("xmc_tf.data")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        return load_matrix(path, name=name)
    finally:
        logger.setLevel(level)


def evaluate(
    truth: smat.spmatrix | np.ndarray, predictions: smat.spmatrix | np.ndarray, ks: Sequence[int] = (1, 3, 5), *,
    training_labels: smat.spmatrix | np.ndarray | None = None,
) -> Measures:  # fmt: skip
    """Measure predictions against the true labels.

    Example:
        >>> metrics = evaluate(Y_test, model.predict(texts))
        >>> metrics.at("P", 1), metrics.at("nDCG", 5)
        (1.0, 1.0)
        >>> print(metrics)

    Args:
        truth: matrix of documents × labels; every nonzero entry is a true label.
        predictions: matrix of documents × labels with the scores.
        ks: the cut-offs k.
        training_labels: matrix of documents × labels of the training data. If passed, PSP and PSnDCG, which give more
            weight to rare labels, are computed too.

    Returns:
        Precision, recall, nDCG and F1 at each cut-off, from 0 to 1.

    Raises:
        InputError: the shapes do not match, a score is NaN, or a cut-off is below 1.
    """
    gains = None
    if training_labels is not None:
        training = as_truth(training_labels, "the training labels")
        if training.shape[1] != truth.shape[1]:
            raise InputError(
                "the training labels do not fit the truth",
                expected=f"{truth.shape[1]:,} labels, as in the truth",
                received=f"{training.shape[1]:,}",
            )
        gains = inverse_propensity(np.bincount(training.indices, minlength=training.shape[1]), training.shape[0])
    overall, *_ = measure(truth, predictions, ks, gains=gains)
    return overall


def precision_and_recall(predicted: smat.csr_matrix, truth: Any, layout: str = "table") -> str:
    """Format precision and recall as a table or, with the layout "pecos", as the lines that PECOS's commands print."""
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
    """Format precision and recall at 1 to ``topk`` as the three lines that PECOS prints, with the same rounding."""
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
