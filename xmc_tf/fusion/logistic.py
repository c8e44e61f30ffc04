"""Logistic regression by Newton's method, with a fixed order of additions: the same bits with any number of threads."""

import numpy as np

from xmc_tf.fusion.kernels import derivatives, mean_squares

_PASSES, _SMALL = 50, 1e-8
_LEAST_SCALE = 0.05  # bounds the weight of a feature that is nearly constant


def fit_logistic(features: np.ndarray, right: np.ndarray, start: np.ndarray, penalty: float = 1.0) -> np.ndarray:
    """Return the weights of a logistic regression, pulled towards ``start``; a larger penalty stays closer to it."""
    features = np.ascontiguousarray(features, np.float64)
    scale = np.sqrt(mean_squares(features))
    scale[scale == 0] = 1.0
    scale = np.maximum(scale, _LEAST_SCALE)
    weights = start.astype(np.float64).copy()
    loss, gradient, curvature = derivatives(features, right, weights)
    for _ in range(_PASSES):
        pull = penalty * scale**2
        step = np.linalg.solve(curvature + np.diag(pull), gradient + pull * (weights - start))
        before = loss + float(np.sum(pull * (weights - start) ** 2)) / 2
        size = 1.0
        while True:  # halve steps that go uphill, as the first ones may
            tried = weights - size * step
            loss, gradient, curvature = derivatives(features, right, tried)
            if loss + float(np.sum(pull * (tried - start) ** 2)) / 2 <= before + 1e-9 * abs(before) or size < 1e-6:
                break
            size /= 2
        weights = tried
        if np.max(np.abs(size * step) * scale) < _SMALL:
            break
    return weights
