"""Compiled sums of a logistic regression."""

import math

import numpy as np

from xmc_tf.common.compiled import kernel


@kernel
def mean_squares(features):
    """Return the mean square of each column."""
    out = np.zeros(features.shape[1])
    for i in range(features.shape[0]):
        for j in range(features.shape[1]):
            out[j] += features[i, j] * features[i, j]
    return out / max(features.shape[0], 1)


@kernel
def derivatives(features, right, weights):
    """Return the loss, its gradient and its second derivatives."""
    width = features.shape[1]
    loss = 0.0
    gradient, curvature = np.zeros(width), np.zeros((width, width))
    for i in range(features.shape[0]):
        raw = 0.0
        for j in range(width):
            raw += features[i, j] * weights[j]
        towards = raw if right[i] else -raw
        loss += math.log1p(math.exp(-towards)) if towards > 0 else math.log1p(math.exp(towards)) - towards
        probability = 1.0 / (1.0 + math.exp(-raw))
        error = probability - (1.0 if right[i] else 0.0)
        spread = probability * (1.0 - probability)
        for j in range(width):
            gradient[j] += error * features[i, j]
            part = spread * features[i, j]
            for k in range(j + 1):
                curvature[j, k] += part * features[i, k]
    for j in range(width):
        for k in range(j):
            curvature[k, j] = curvature[j, k]
    return loss, gradient, curvature
