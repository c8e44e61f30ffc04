"""Copying of columns to their places in a sparse matrix."""

from xmc_tf.common.compiled import kernel


@kernel
def copy_columns(labels, indptr, features, weights, out_indptr, out_features, out_weights):
    """Copy columns to the places of their labels in a CSC matrix.

    Args:
        labels: label of each column; -1: not copied.
        indptr: the columns: starts,
        features: rows,
        weights: and values.
        out_indptr: the matrix: starts, which are set already,
        out_features: rows,
        out_weights: and values.
    """
    for j in range(len(labels)):
        if labels[j] >= 0:
            at, begin, end = out_indptr[labels[j]], indptr[j], indptr[j + 1]
            for p in range(end - begin):
                out_features[at + p] = features[begin + p]
                out_weights[at + p] = weights[begin + p]
