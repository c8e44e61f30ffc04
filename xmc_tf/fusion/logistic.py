"""Logistic regression by Newton's method. Sums have a fixed order, so threads do not change the result."""

import math

import numpy as np

from xmc_tf.common.compiled import kernel

FIXED = 1e6  # penalty that keeps a weight as it is
_PASSES, _SMALL = 50, 1e-8
_LEAST_SCALE = 0.05  # bounds the weight of a feature that is nearly constant


def fit_logistic(
    features: np.ndarray, right: np.ndarray, start: np.ndarray, penalty: float | np.ndarray = 1.0,
    guess: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Fit a logistic regression whose weights are pulled towards ``start``, more strongly with a larger penalty.

    The search begins at ``guess``, by default at ``start``.
    """
    features = np.ascontiguousarray(features, np.float64)
    scale = np.sqrt(_mean_squares(features))
    scale[scale == 0] = 1.0
    scale = np.maximum(scale, _LEAST_SCALE)
    weights = (start if guess is None else guess).astype(np.float64)
    loss, gradient, curvature = _derivatives(features, right, weights)
    for _ in range(_PASSES):
        pull = penalty * scale**2
        step = np.linalg.solve(curvature + np.diag(pull), gradient + pull * (weights - start))
        before = loss + float(np.sum(pull * (weights - start) ** 2)) / 2
        size = 1.0
        while True:  # halve steps that go uphill, as the first ones may
            tried = weights - size * step
            loss, gradient, curvature = _derivatives(features, right, tried)
            if loss + float(np.sum(pull * (tried - start) ** 2)) / 2 <= before + 1e-9 * abs(before) or size < 1e-6:
                break
            size /= 2
        weights = tried
        if np.max(np.abs(size * step) * scale) < _SMALL:
            break
    return weights


@kernel
def _mean_squares(features: np.ndarray) -> np.ndarray:
    """Return the mean of the squares of each column."""
    out = np.zeros(features.shape[1])
    for i in range(features.shape[0]):
        for j in range(features.shape[1]):
            out[j] += features[i, j] * features[i, j]
    return out / max(features.shape[0], 1)


@kernel
def _derivatives(features: np.ndarray, right: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the loss, its gradient and its Hessian."""
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
