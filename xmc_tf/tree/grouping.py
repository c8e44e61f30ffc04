"""The depth of the tree, and the grouping of its binary levels into levels of ``nr_splits`` children."""

import math

import numpy as np
from scipy.sparse import csc_matrix


def binary_depth(nr_labels: int, max_leaf_size: int) -> int:
    """Return how often the labels are halved until a leaf holds at most ``max_leaf_size``; no leaf is empty."""
    if nr_labels <= max_leaf_size:
        return 0
    depth = max(1, math.ceil(math.log2(nr_labels / max_leaf_size)))
    return min(depth, nr_labels.bit_length() - 1)


def half_bounds(size: int, depth: int) -> np.ndarray:
    """Return the bounds of the ``2**depth`` leaves of repeated halving; of an odd number, the left half is smaller."""
    bounds = np.array([0, size], np.int64)
    for _ in range(depth):
        middle = (bounds[:-1] + bounds[1:]) >> 1
        finer = np.empty(2 * bounds.size - 1, np.int64)
        finer[0::2], finer[1::2] = bounds, middle
        bounds = finer
    return bounds


def upper_splits(nr_leaves: int, nr_splits: int, min_codes: int | None) -> list[np.ndarray]:
    """Return the child bounds of each level above the leaves, the root first. Each ``nr_splits`` neighbours get one
    parent, until at most ``min_codes`` nodes are left for the root (default: ``nr_splits``; 1 or less: all leaves).
    """
    if min_codes is None:
        min_codes = nr_splits
    if min_codes <= 1:
        min_codes = nr_leaves
    levels: list[np.ndarray] = []
    nodes = nr_leaves
    while nodes > min_codes:
        parents = -(-nodes // nr_splits)
        levels.insert(0, np.minimum(np.arange(parents + 1, dtype=np.int64) * nr_splits, nodes))
        nodes = parents
    if nodes > 1:
        levels.insert(0, np.array([0, nodes], np.int64))
    return levels


def cluster_matrix(splits: np.ndarray, children: np.ndarray | None = None) -> csc_matrix:
    """Return the matrix child × parent, float32; by default, children are numbered in the order of their parents."""
    rows = np.arange(splits[-1]) if children is None else children
    kind = np.int32 if rows.size < 2**31 else np.int64
    parts = np.ones(rows.size, np.float32), rows.astype(kind), splits.astype(kind)
    return csc_matrix(parts, shape=(rows.size, splits.size - 1))
