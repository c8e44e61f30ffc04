"""The training problem of one cluster. Its documents are consecutive in memory, and its features are renumbered by
descending frequency, so that the weights in use fit in the cache. A private feature, which occurs in only one document
(a quarter of all entries in leaf clusters), is removed: its weight is always alpha * y * x, so it adds alpha * x² to
the margin, which is a term on the diagonal.
"""

from typing import NamedTuple

import numpy as np

from xmc_tf.common.compiled import inner, kernel


class ClusterProblem(NamedTuple):
    """The documents of one cluster in the form that the solvers read."""

    rows: np.ndarray  # the documents' rows in the full matrix
    indptr: np.ndarray  # position of each document's first entry
    features: np.ndarray  # local feature number of each entry
    values: np.ndarray
    own: np.ndarray  # sum of squares of each document's private entries
    square: np.ndarray  # squared norm of each document, with dense part and bias
    names: np.ndarray  # full-matrix column of each local feature
    private_indptr: np.ndarray  # position of each document's first private entry
    private_names: np.ndarray  # full-matrix column of each private entry
    private_values: np.ndarray


@inner
def count_features(indptr, indices, rows, slot):
    """Return the distinct features of ``rows`` in order of occurrence; count them in ``slot`` (initially zeros)."""
    entries = 0
    for row in rows:
        entries += indptr[row + 1] - indptr[row]
    seen = np.empty(entries, np.int32)
    found = 0
    for row in rows:
        for p in range(indptr[row], indptr[row + 1]):
            feature = indices[p]
            if slot[feature] == 0:
                seen[found] = feature
                found += 1
            slot[feature] += 1
    return seen[:found].copy()


@inner
def _rank_features(indptr, indices, rows, slot):
    """Rank the features of ``rows`` by frequency in ``slot`` (private: -1). Return the ranked and all features."""
    seen = count_features(indptr, indices, rows, slot)
    first = np.zeros(len(rows) + 2, np.int64)  # first[c]: number of features more frequent than c
    for feature in seen:
        first[min(slot[feature], len(rows))] += 1
    total = 0
    for count in range(len(rows), -1, -1):
        total, first[count] = total + first[count], total
    kept = 0
    for feature in seen:
        kept += slot[feature] > 1
    names = np.empty(kept, np.int32)
    for feature in seen:
        count = slot[feature]
        if count == 1:
            slot[feature] = -1
            continue
        bucket = min(count, len(rows))
        slot[feature] = first[bucket]
        names[first[bucket]] = feature
        first[bucket] += 1
    return names, seen


@kernel
def gather(indptr, indices, data, rows, slot, square, bias):
    """Return the problem of a cluster with the documents ``rows`` (sorted) of a CSR matrix. ``slot`` has one entry per
    feature and is zero before and after the call.
    """
    names, seen = _rank_features(indptr, indices, rows, slot)
    n = len(rows)
    shared = 0
    private = 0
    for row in rows:
        for p in range(indptr[row], indptr[row + 1]):
            if slot[indices[p]] >= 0:
                shared += 1
            else:
                private += 1
    out = ClusterProblem(
        rows, np.zeros(n + 1, np.int64), np.empty(shared, np.int32), np.empty(shared, np.float32),
        np.zeros(n, np.float32), np.zeros(n, np.float32), names, np.zeros(n + 1, np.int64), np.empty(private, np.int32),
        np.empty(private, np.float32),
    )  # fmt: skip
    shared = 0
    private = 0
    for i in range(n):
        row = rows[i]
        norm = bias * bias
        own = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            value = data[p]
            norm += value * value
            local = slot[indices[p]]
            if local >= 0:
                out.features[shared] = local
                out.values[shared] = value
                shared += 1
            else:
                own += value * value
                out.private_names[private] = indices[p]
                out.private_values[private] = value
                private += 1
        if len(square) > 0:
            norm += square[row]
        out.own[i] = own
        out.square[i] = norm
        out.indptr[i + 1] = shared
        out.private_indptr[i + 1] = private
    for feature in seen:
        slot[feature] = 0
    return out


_TINY = np.float32(1e-8)  # smallest cost of a positive


class Positives(NamedTuple):
    """The positive documents of a level's labels, as CSC arrays."""

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
    """Write a label's signs (positives +1, other matched documents -1, the rest 0) and costs to a lane."""
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
