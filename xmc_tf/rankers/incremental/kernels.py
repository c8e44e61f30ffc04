"""Adjust the weights of labels to new documents of their cluster.

The solver minimizes, over the new weights w of a label,

    ½ Σ_j h_j (w_j - v_j)² + C Σ_i max(0, 1 - y_i w·x_i)²      (or without the square)

where v are the current weights, and the sum over i covers only the new documents. The earlier documents are represented
by h: h_j is 1 (the regularization) plus C times the sum of squares of feature j over the cluster's earlier documents,
which stands for the diagonal of their Hessian. A frequent feature therefore moves little, and a rare one moves as far
as in a normal training run. As in normal training, the problem is solved in the dual by coordinate descent.
"""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.rankers.kernels.emit import WeightColumns
from xmc_tf.rankers.kernels.gather import count_features

_MOST_EARLIER = 500  # about the number of earlier documents that are read


@inner
def _number_features(indptr, indices, rows, slot):
    """Return the features of ``rows`` in ascending order; ``slot`` receives 1 + each feature's position."""
    names = np.sort(count_features(indptr, indices, rows, slot))
    for j in range(len(names)):
        slot[names[j]] = j + 1
    return names


@kernel
def adjust_labels(
    indptr, indices, data, earlier, rows, labels, positives, weight_indptr, weight_indices, weight_data, slot, settings,
    squared,
):  # fmt: skip
    """Return the adjusted weight columns of a cluster's labels, without labels that are already optimal within ``eps``.
    ``rows`` are the new documents, and ``earlier`` are those on which the current weights (CSC, bias last) were
    trained. ``slot`` is zero before and after the call.
    """
    cp, cn, bias, eps, max_iter, threshold, max_nonzeros = settings
    names = _number_features(indptr, indices, rows, slot)
    n, nr_names, bias_row = len(rows), len(names), len(slot)
    held = np.ones(nr_names + 1)
    # A sample of the earlier documents is nearly as good, and reading all of them would take most of the time.
    stride = max(len(earlier) // _MOST_EARLIER, 1)
    for row in earlier[::stride]:
        for p in range(indptr[row], indptr[row + 1]):
            if slot[indices[p]] > 0:
                held[slot[indices[p]] - 1] += stride * cn * data[p] * data[p]
    held[nr_names] += cn * bias * bias * len(earlier)
    # Renumber the features of the new documents, so that every pass over them stays in the processor's cache.
    starts, places, values, pulls, square = _compact(indptr, indices, data, rows, slot, held, bias)

    most = np.int64(0)
    for label in labels:
        most += weight_indptr[label + 1] - weight_indptr[label] + nr_names + 1
    columns = WeightColumns(
        labels.copy(), np.zeros(len(labels) + 1, np.int64), np.empty(most, np.int32), np.empty(most, np.float32),
        np.zeros(1, np.int64),
    )  # fmt: skip
    w, alpha, sign = np.empty(nr_names + 1), np.empty(n), np.empty(n)
    for label in labels:
        _signs(positives, label, rows, sign)
        w[:], alpha[:] = 0.0, 0.0
        begin, end = weight_indptr[label], weight_indptr[label + 1]
        for p in range(begin, end):
            feature = weight_indices[p]
            if feature == bias_row:
                w[nr_names] = weight_data[p]
            elif slot[feature] > 0:
                w[slot[feature] - 1] = weight_data[p]
        if _is_optimal(starts, places, values, w, sign, bias, eps):
            continue
        for _ in range(max_iter):
            highest, lowest = -1e30, 1e30
            for i in range(n):
                margin = _margin(starts, places, values, w, bias, i)
                c = cp if sign[i] > 0 else cn
                diagonal = 0.5 / c if squared else 0.0
                upper = np.inf if squared else c
                old = alpha[i]
                gradient = sign[i] * margin - 1.0 + old * diagonal
                new = min(max(old - gradient / (square[i] + diagonal), 0.0), upper)
                if old <= 0.0:
                    gradient = min(gradient, 0.0)
                elif old >= upper:
                    gradient = max(gradient, 0.0)
                highest, lowest = max(highest, gradient), min(lowest, gradient)
                step = (new - old) * sign[i]
                if step != 0.0:
                    alpha[i] = new
                    w[nr_names] += step * bias / held[nr_names]
                    for p in range(starts[i], starts[i + 1]):
                        w[places[p]] += step * pulls[p]
            if highest - lowest <= eps:
                break
        at = columns.filled[0]
        used = columns.indptr[at]
        found = _emit(
            columns.features[used:], columns.weights[used:], names, w, weight_indices[begin:end],
            weight_data[begin:end], slot, threshold, max_nonzeros,
        )  # fmt: skip
        columns.labels[at], columns.indptr[at + 1] = label, used + found
        columns.filled[0] += 1
    for name in names:
        slot[name] = 0
    return columns


@inner
def _compact(indptr, indices, data, rows, slot, held, bias):
    """Return documents as CSR with renumbered features, and the effect of a step on each weight and margin."""
    count = 0
    for row in rows:
        count += indptr[row + 1] - indptr[row]
    starts, places = np.zeros(len(rows) + 1, np.int64), np.empty(count, np.int32)
    values, pulls = np.empty(count, np.float32), np.empty(count)
    square = np.full(len(rows), bias * bias / held[len(held) - 1])
    at = 0
    for i in range(len(rows)):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            places[at], values[at] = slot[indices[p]] - 1, data[p]
            pulls[at] = data[p] / held[places[at]]
            square[i] += data[p] * pulls[at]
            at += 1
        starts[i + 1] = at
    return starts, places, values, pulls, square


@inner
def _margin(starts, places, values, w, bias, i):
    margin = bias * w[len(w) - 1]
    for p in range(starts[i], starts[i + 1]):
        margin += values[p] * w[places[p]]
    return margin


@inner
def _is_optimal(starts, places, values, w, sign, bias, eps):
    """Return True if no document's margin is below 1 by more than ``eps``."""
    lowest = np.inf
    for i in range(len(sign)):
        lowest = min(lowest, sign[i] * _margin(starts, places, values, w, bias, i))
        if lowest < 1.0 - eps:
            break
    return lowest >= 1.0 - eps


@inner
def _signs(positives, label, rows, sign):
    """Write the sign of each document: +1 if it is a positive of the label, else -1."""
    p, end = positives.indptr[label], positives.indptr[label + 1]
    for i in range(len(rows)):
        while p < end and positives.documents[p] < rows[i]:
            p += 1
        sign[i] = 1.0 if p < end and positives.documents[p] == rows[i] else -1.0


@inner
def _emit(features, weights, names, w, old_features, old_weights, slot, threshold, max_nonzeros):
    """Write a column in ascending order of features: the adjusted weights, and the current weights of all other
    features. Return its length.
    """
    bias_row, found, j = len(slot), 0, 0
    for p in range(len(old_features)):
        feature = old_features[p]
        if feature == bias_row or slot[feature] > 0:
            continue
        while j < len(names) and names[j] < feature:
            if abs(w[j]) >= threshold and w[j] != 0.0:
                features[found], weights[found] = names[j], w[j]
                found += 1
            j += 1
        features[found], weights[found] = feature, old_weights[p]
        found += 1
    for k in range(j, len(names) + 1):
        if abs(w[k]) >= threshold and w[k] != 0.0:
            features[found], weights[found] = names[k] if k < len(names) else bias_row, w[k]
            found += 1
    if 0 < max_nonzeros < found:
        kept = np.sort(np.argsort(-np.abs(weights[:found]), kind="mergesort")[:max_nonzeros])
        kept_features, kept_weights = features[:found][kept], weights[:found][kept]
        found = max_nonzeros
        features[:found], weights[:found] = kept_features, kept_weights
    return found
