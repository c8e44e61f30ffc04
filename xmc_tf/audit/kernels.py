"""Compiled kernels that compare documents, and that sum gradients for boosted trees."""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.common.ordering import offer, sort_best_first

LEAST_SIMILARITY = 0.05
SHARPNESS = (3.0, 6.0, 10.0)  # a larger value gives the most similar documents more weight


@kernel
def gradient_sums(binned, leaf, gradient, weight, nr_leaves, nr_bins):
    """Return the sums of gradients and of weights: ``[2, leaves, columns, bins]``."""
    out = np.zeros((2, nr_leaves, binned.shape[1], nr_bins))
    for i in range(binned.shape[0]):
        for j in range(binned.shape[1]):
            out[0, leaf[i], j, binned[i, j]] += gradient[i]
            out[1, leaf[i], j, binned[i, j]] += weight[i]
    return out


@inner
def _cosine(product, one, other):
    return product / np.sqrt(one * other) if product > 1e-6 and one > 1e-6 and other > 1e-6 else 0.0


@inner
def _has(labels, first, last, label):
    found = False
    for place in range(first, last):
        found = found or labels[place] == label
    return found


@inner
def _add_products(matrix, turned, row, which, sums, touched, seen, count):
    """Add a row's dot products with all rows to ``sums[which]``. Return how many rows have shared a column so far."""
    indptr, indices, data = matrix
    turned_indptr, turned_indices, turned_data = turned
    for place in range(indptr[row], indptr[row + 1]):
        column, value = indices[place], data[place]
        for other in range(turned_indptr[column], turned_indptr[column + 1]):
            found = turned_indices[other]
            if seen[found] != row:
                seen[found] = row
                sums[0, found] = 0.0
                sums[1, found] = 0.0
                touched[count] = found
                count += 1
            sums[which, found] += value * turned_data[other]
    return count


@kernel
def compare_documents(first, last, X, words, Y, labels, sizes, pairs, near, evidence):
    """Compare the documents from ``first`` to ``last`` (exclusive) with all others, by their words and their labels.

    The results are written into the documents' rows of ``near`` (ids, similarities and count of the documents with the
    most similar words, best first) and into their pairs' rows of ``evidence`` (columns: `neighbours.ALIKE`). Whether a
    document has the label of a pair does not affect the evidence of that pair: the label is ignored, and documents that
    are similar only because of it are left out.

    ``X`` and ``Y`` (with label weights) are indptr, indices and data by document. ``words`` and ``labels`` are their
    transposes, in which ignored features and labels have no entries. ``sizes`` has each document's sum of squared
    label weights. ``pairs`` has the first pair of each document and, for each pair, the label, whether the document
    has it, and its squared weight.
    """
    begins, of_pairs, has, weights = pairs
    near_ids, near_values, near_counts = near
    label_indptr, label_indices = Y[0], Y[1]
    nr_documents = len(sizes)
    most = 2 * near_ids.shape[1]
    sums = np.zeros((2, nr_documents))
    touched, seen = np.empty(nr_documents, np.int64), np.full(nr_documents, -1, np.int64)
    ids, values = np.empty(most, np.int64), np.empty(most)
    for row in range(first, last):
        seen[row] = -1
        count = _add_products(X, words, row, 0, sums, touched, seen, 0)
        count = _add_products(Y, labels, row, 1, sums, touched, seen, count)
        size = close = 0
        for place in range(count):
            other = touched[place]
            if other == row:
                continue
            alike = sums[0, other]
            if alike >= LEAST_SIMILARITY:
                close = offer(near_ids[row], near_values[row], close, near_ids.shape[1], other, alike)
            alike += _cosine(sums[1, other], sizes[row], sizes[other])
            if alike > 0:
                size = offer(ids, values, size, most, other, alike)
        sort_best_first(near_ids[row], near_values[row], close)
        near_counts[row] = close
        sort_best_first(ids, values, size)
        least = values[size - 1] if size == most else 0.0
        for pair in range(begins[row], begins[row + 1]):
            label, own, weight = of_pairs[pair], has[pair], weights[pair]
            length = sizes[row] - weight if own else sizes[row]
            best = second = of_labels = of_words = without = 0.0
            votes, total = np.zeros(len(SHARPNESS)), np.ones(len(SHARPNESS))
            for place in range(size):
                other = ids[place]
                shared, others = sums[1, other], sizes[other]
                member = _has(label_indices, label_indptr[other], label_indptr[other + 1], label)
                if member:
                    others -= weight
                    if own:
                        shared -= weight
                by_labels = _cosine(shared, length, others)
                alike = sums[0, other] + by_labels
                if member and own and alike < least:
                    continue
                for k in range(len(SHARPNESS)):
                    vote = np.exp(SHARPNESS[k] * alike) - 1.0
                    total[k] += vote
                    if member:
                        votes[k] += vote
                if not member:
                    without = max(without, alike)
                    continue
                of_labels, of_words = max(of_labels, by_labels), max(of_words, sums[0, other])
                if alike > best:
                    best, second = alike, best
                else:
                    second = max(second, alike)
            evidence[pair, 0], evidence[pair, 1] = best, second
            evidence[pair, 2], evidence[pair, 3] = of_labels, of_words
            evidence[pair, 4] = best - without
            for k in range(len(SHARPNESS)):
                evidence[pair, 5 + k] = votes[k] / total[k]
