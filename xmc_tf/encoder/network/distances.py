"""The rows of tables of relative positions: which row a distance between two tokens uses."""

import math

import numpy as np


def mpnet_buckets(buckets: int, farthest: int) -> np.ndarray:
    """Return the bucket of each distance of a query from a key, from ``-farthest`` to ``farthest``."""
    # Half of the buckets for either side; half of these for single distances, the rest for ranges that grow up to 128.
    distance = np.arange(-farthest, farthest + 1)
    half = buckets // 2
    exact = half // 2
    size = np.abs(distance)
    growing = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(exact)) / np.float32(math.log(128 / exact))
    large = np.minimum(exact + (growing * np.float32(half - exact)).astype(np.int32), half - 1)
    return (np.where(distance < 0, half, 0) + np.where(size < exact, size, large)).astype(np.int32)


def deberta_places(buckets: int, farthest_bucket: int, span: int, farthest: int) -> np.ndarray:
    """Return the row of relative positions for each distance of a query from a key, ``-farthest`` to ``farthest``."""
    distance = np.arange(-farthest, farthest + 1)
    place = distance
    if buckets > 0:
        middle = buckets // 2
        size = np.where(np.abs(distance) < middle, middle - 1, np.abs(distance)).astype(np.float32)
        ratio = np.log(size / np.float32(middle)) / np.log(np.float32((farthest_bucket - 1) / middle))
        ranged = np.ceil(ratio * np.float32(middle - 1)) + middle
        place = np.where(size <= middle, distance, ranged * np.sign(distance)).astype(np.int64)
    return np.clip(place + span, 0, 2 * span - 1).astype(np.int32)
