"""Compiled sums of boosted trees."""

import numpy as np

from xmc_tf.common.compiled import kernel


@kernel
def gradient_sums(binned, leaf, gradient, weight, nr_leaves, nr_bins):
    """Return the sums of gradients and weights: [2, leaves, columns, bins]."""
    out = np.zeros((2, nr_leaves, binned.shape[1], nr_bins))
    for i in range(binned.shape[0]):
        for j in range(binned.shape[1]):
            out[0, leaf[i], j, binned[i, j]] += gradient[i]
            out[1, leaf[i], j, binned[i, j]] += weight[i]
    return out
