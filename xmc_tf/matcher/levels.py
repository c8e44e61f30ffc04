"""The levels of the tree that the encoder is fine-tuned on, and their labels: sums up the tree."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.tree import LabelTree


@dataclass(frozen=True, eq=False)
class LevelTask:
    """The labels of the documents at one level of the tree.

    Args:
        level: number of the level; 1 for the children of the root.
        splits: the children of parent ``p`` are the nodes ``[splits[p], splits[p + 1])`` of this level; the top level
            has one parent, the root.
        targets: documents × nodes in the order of the tree, float32, sorted, without zeros. An entry means that the
            node contains a label of the document; its value is the weight of that positive.
    """

    level: int
    splits: np.ndarray
    targets: csr_matrix

    @property
    def nr_nodes(self) -> int:
        """Number of nodes of the level."""
        return int(self.targets.shape[1])

    @property
    def nr_parents(self) -> int:
        """Number of nodes of the level above; 1 at the top."""
        return len(self.splits) - 1

    @property
    def nr_documents(self) -> int:
        """Number of documents."""
        return int(self.targets.shape[0])


def deepest_level(tree: LabelTree, max_match_clusters: int) -> int:
    """Return the last level of the tree with at most ``max_match_clusters`` nodes."""
    sizes = tree.level_sizes[1:]
    deepest = next((t for t, size in enumerate(sizes) if size > max_match_clusters), len(sizes))
    if deepest == 0:
        raise InputError(
            f"no level of {tree} is small enough for fine-tuning",
            expected=f"at most max_match_clusters={max_match_clusters:,} nodes below the root",
            received=f"{sizes[0]:,}",
            fix="raise max_match_clusters, or lower nr_splits or min_codes",
        )
    return deepest


def levels_of(
    tree: LabelTree, Y: spmatrix, *, max_match_clusters: int, weights: spmatrix | bool | None = None
) -> list[LevelTask]:
    """Return the levels that are fine-tuned: from the children of the root to the last one that is small enough.

    Example:
        >>> tree = LabelTree(splits=([0, 2], [0, 2, 5]), labels=[1, 4, 0, 2, 3])
        >>> Y = csr_matrix([[0, 1, 0, 0, 1]])
        >>> [task.targets.toarray().tolist() for task in levels_of(tree, Y, max_match_clusters=4, weights=True)]
        [[[2.0, 0.0]]]

    Args:
        tree: tree over the labels.
        Y: documents × labels; the values of the entries are ignored.
        max_match_clusters: the maximum number of nodes of a level; larger levels are left to the rankers.
        weights: weights of the positives. None: 1. True: the number of the document's labels that the node contains.
            A matrix with the entries of ``Y``: the sum of its entries below the node.

    Returns:
        One task per level, the top first.
    """
    if Y.shape[1] != tree.nr_labels:
        raise InputError(
            "the labels do not fit the tree",
            expected=f"{tree.nr_labels:,} columns",
            received=f"{Y.shape[1]:,}",
        )
    deepest = deepest_level(tree, max_match_clusters)
    values = _in_tree_order(_values(Y, weights), tree)
    tasks: list[LevelTask] = []
    for level in range(tree.depth, 0, -1):
        if level <= deepest:
            targets = values.copy() if weights is None else values
            if weights is None:
                targets.data[:] = 1
            tasks.insert(0, LevelTask(level, tree.splits[level - 1], targets))
        if level > 1:
            values = _to_parents(values, tree.splits[level - 1])
    return tasks


def _values(Y: spmatrix, weights: spmatrix | bool | None) -> csr_matrix:
    """Return the values to sum up the tree: an entry for each label of a document."""
    labels = _canonical(Y)
    if weights is None or isinstance(weights, bool):
        labels.data[:] = 1
        return labels
    relevance = _canonical(weights)
    same = relevance.shape == labels.shape and np.array_equal(relevance.indptr, labels.indptr)
    if not same or not np.array_equal(relevance.indices, labels.indices) or (relevance.data < 0).any():
        raise InputError(
            "the weights do not belong to the labels",
            expected=f"a number above zero for each of the {labels.nnz:,} labels of {labels.shape[0]:,} documents",
            received=f"{relevance.nnz:,} numbers in a matrix of {relevance.shape[0]:,} × {relevance.shape[1]:,}",
        )
    return relevance


def _canonical(matrix: spmatrix) -> csr_matrix:
    """Return a copy as float32 CSR, sorted, without duplicates and zeros."""
    out = csr_matrix(matrix, dtype=np.float32, copy=True)
    out.sum_duplicates()
    out.eliminate_zeros()
    return out


def _in_tree_order(values: csr_matrix, tree: LabelTree) -> csr_matrix:
    moved = tree.inverse[values.indices].astype(values.indices.dtype)
    out = csr_matrix((values.data, moved, values.indptr), shape=values.shape)
    out.sort_indices()
    return out


def _to_parents(values: csr_matrix, splits: np.ndarray) -> csr_matrix:
    """Return the sums over the children of each node of the level above."""
    nr_parents = len(splits) - 1
    parent_of = np.repeat(np.arange(nr_parents, dtype=values.indices.dtype), np.diff(splits))
    parts = values.data.copy(), parent_of[values.indices], values.indptr.copy()
    out = csr_matrix(parts, shape=(values.shape[0], nr_parents))
    out.sum_duplicates()
    return out
