"""The problem of one cluster: its documents in consecutive memory, their features renumbered.

A cluster has a few thousand of millions of documents and a few thousand of hundreds of thousands of features. Solvers
work on a copy in which

* the documents follow each other, so that a pass streams through memory;
* features are numbered from the most frequent one on, so that the weights in use are together in the cache;
* a private feature, which only one document has (a quarter of all entries in leaf clusters of short texts), is removed:
  its weight is always alpha * y * x, so its share of the margin is alpha * x², a term on the diagonal.
"""

from typing import NamedTuple

import numpy as np

from xmc_tf.common.compiled import inner, kernel


class ClusterProblem(NamedTuple):
    """The documents of one cluster in the form that solvers read.

    Attributes:
        rows: the documents' rows in the full matrix.
        indptr: position of each document's first entry.
        features: local feature number of each entry.
        values: value of each entry.
        own: sum of squares of each document's private entries.
        square: squared norm of each document, including dense part and bias.
        names: full-matrix column of each local feature.
        private_indptr: position of each document's first private entry.
        private_names: full-matrix column of each private entry.
        private_values: value of each private entry.
    """

    rows: np.ndarray
    indptr: np.ndarray
    features: np.ndarray
    values: np.ndarray
    own: np.ndarray
    square: np.ndarray
    names: np.ndarray
    private_indptr: np.ndarray
    private_names: np.ndarray
    private_values: np.ndarray


@inner
def count_features(indptr, indices, rows, slot):
    """Return the features of ``rows``, each once, in the order in which they occur.

    ``slot`` is a zeroed scratch array over all features; on return, it contains how often each feature occurs.
    """
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
    """Number the features of ``rows`` by descending frequency; private ones get no number (-1).

    ``slot`` is a zeroed scratch array over all features; on return, it contains each feature's local number.
    """
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
    """Copy ``rows`` of a CSR matrix into a :class:`ClusterProblem`.

    Args:
        indptr: row pointers of the full matrix, int64.
        indices: columns of the full matrix, int32.
        data: values of the full matrix, float32.
        rows: sorted documents of the cluster.
        slot: scratch memory, int32 zeros, one per feature of the full matrix; zero again on return.
        square: squared norm of the dense part of every document of the full matrix (or an empty array).
        bias: value of the constant feature; 0 for none.
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
        rows,
        np.zeros(n + 1, np.int64),
        np.empty(shared, np.int32),
        np.empty(shared, np.float32),
        np.zeros(n, np.float32),
        np.zeros(n, np.float32),
        names,
        np.zeros(n + 1, np.int64),
        np.empty(private, np.int32),
        np.empty(private, np.float32),
    )
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
