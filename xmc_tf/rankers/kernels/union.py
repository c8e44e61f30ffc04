"""The union of the labels that several trees find for a document, with the score of each label in each tree."""

import numpy as np

from xmc_tf.common.compiled import kernel


@kernel
def unite(nodes, counts, first, last, out_labels, out_counts):
    """Write the labels that any tree has found for each document, in ascending order and without duplicates. ``nodes``
    has the shape [trees, documents, most].
    """
    for row in range(first, last):
        size = 0
        for tree in range(nodes.shape[0]):
            for place in range(counts[tree, row]):
                out_labels[row, size] = nodes[tree, row, place]
                size += 1
        found = np.sort(out_labels[row, :size])
        size = 0
        for label in found:
            if size == 0 or out_labels[row, size - 1] != label:
                out_labels[row, size] = label
                size += 1
        out_counts[row] = size


@kernel
def place_scores(nodes, scores, counts, indptr, indices, first, last, out):
    """Write the scores of the labels that each tree has found to ``out`` [entries, trees]."""
    for row in range(first, last):
        begin, end = indptr[row], indptr[row + 1]
        for tree in range(nodes.shape[0]):
            for place in range(counts[tree, row]):
                at = begin + np.searchsorted(indices[begin:end], nodes[tree, row, place])
                out[at, tree] = scores[tree, row, place]


@kernel
def best_by_mean(indptr, indices, scores, first, last, nodes, means, counts):
    """Write the labels of each document with the best mean scores over the trees. Scores are added in float32, from the
    first tree to the last, as in an exported graph, so that both give the same result. Labels with equal means are in
    ascending order.
    """
    trees, most = scores.shape[1], nodes.shape[1]
    for row in range(first, last):
        begin, end = indptr[row], indptr[row + 1]
        mean = np.empty(end - begin, np.float32)
        for entry in range(begin, end):
            total = scores[entry, 0]
            for tree in range(1, trees):
                total += scores[entry, tree]
            mean[entry - begin] = total / np.float32(trees)
        order = np.argsort(-mean, kind="mergesort")
        size = min(most, end - begin)
        for place in range(size):
            nodes[row, place] = indices[begin + order[place]]
            means[row, place] = mean[order[place]]
        counts[row] = size
