"""A part of a model: the paths to some labels."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.rankers.level import Level


def checked_labels(labels: Iterable[int], nr_labels: int) -> np.ndarray:
    """Return label numbers in ascending order, each once.

    Raises:
        InputError: if there are none, or one is not the number of a label.
    """
    numbers = np.asarray(labels if isinstance(labels, np.ndarray) else list(labels))
    if numbers.size == 0:
        raise InputError("no labels are given to predict", expected="at least one label number")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InputError(
            "the labels to predict are not label numbers",
            expected="a list of whole numbers",
            received=f"an array of {numbers.dtype}, shape {numbers.shape}",
        )
    if numbers.min() < 0 or numbers.max() >= nr_labels:
        wrong = numbers[(numbers < 0) | (numbers >= nr_labels)][0]
        raise InputError(
            f"label {wrong} does not exist in this model",
            expected=f"label numbers from 0 to {nr_labels - 1:,}",
            received=str(wrong),
        )
    return np.unique(numbers).astype(np.int64)


def restricted(levels: Sequence[Level], labels: np.ndarray) -> list[Level]:
    """Return the levels with only the nodes that lead to ``labels``; the numbers of nodes and labels stay.

    The result shares its weights with ``levels``.
    """
    kept = np.zeros(levels[-1].clusters.shape[0], bool)
    kept[labels] = True
    out: list[Level] = []
    for level in reversed(levels):
        clusters = level.clusters
        entries = kept[clusters.indices]
        counted = np.concatenate([[0], np.cumsum(entries)])
        indptr = counted[clusters.indptr].astype(clusters.indptr.dtype)
        pruned = csc_matrix((clusters.data[entries], clusters.indices[entries], indptr), shape=clusters.shape)
        out.insert(0, dataclasses.replace(level, clusters=pruned))
        kept = np.diff(indptr) > 0
    return out
