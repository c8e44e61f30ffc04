"""The inputs of the solvers: labels with their positives, and settings."""

from typing import NamedTuple

import numpy as np

from xmc_tf.common.compiled import inner

_TINY = np.float32(1e-8)  # smallest cost of a positive


class Positives(NamedTuple):
    """The positives of a level's labels, as CSC."""

    indptr: np.ndarray  # int64, position of each label's first positive
    documents: np.ndarray  # int32, documents of each label, ascending
    costs: np.ndarray  # float32, cost of each positive; empty if all are 1


class SolverSettings(NamedTuple):
    cp: float  # penalty of positives
    cn: float  # penalty of negatives
    bias: float  # value of the constant feature; 0 for none
    eps: float  # tolerance at which a label is done
    max_iter: int  # maximum number of passes over the documents
    threshold: float  # weights closer to 0 are dropped
    max_nonzeros: int  # maximum number of weights kept per label; 0 for all


@inner
def open_lane(lane, label, positives, rows, in_match, signs, cost):
    """Set the signs of a label in one lane: +1 for positives, -1 for the other matched documents, 0 elsewhere.

    ``cost`` has a single row if all costs are 1.
    """
    for i in range(len(rows)):
        signs[i, lane] = -1 if in_match[i] else 0
        if len(cost) > 1:
            cost[i, lane] = 1.0
    i = 0
    for p in range(positives.indptr[label], positives.indptr[label + 1]):
        while i < len(rows) and rows[i] < positives.documents[p]:
            i += 1
        if i < len(rows) and rows[i] == positives.documents[p]:
            signs[i, lane] = 1
            if len(cost) > 1:
                cost[i, lane] = max(positives.costs[p], _TINY)
