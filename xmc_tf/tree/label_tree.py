"""The label tree: a permutation of the labels, and levels of nodes whose children are contiguous."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
from scipy.sparse import csc_matrix, issparse, sparray, spmatrix

from xmc_tf.common.errors import InputError


def binary_depth(nr_labels: int, max_leaf_size: int) -> int:
    """Return how often to halve the labels for leaves of at most ``max_leaf_size`` labels; no leaf may be empty."""
    if nr_labels <= max_leaf_size:
        return 0
    depth = max(1, math.ceil(math.log2(nr_labels / max_leaf_size)))
    return min(depth, nr_labels.bit_length() - 1)


def half_bounds(size: int, depth: int) -> np.ndarray:
    """Return the bounds of the ``2**depth`` leaves of repeated halving. The left half of an odd number is smaller."""
    bounds = np.array([0, size], np.int64)
    for _ in range(depth):
        middle = (bounds[:-1] + bounds[1:]) >> 1
        finer = np.empty(2 * bounds.size - 1, np.int64)
        finer[0::2], finer[1::2] = bounds, middle
        bounds = finer
    return bounds


def upper_splits(nr_leaves: int, nr_splits: int, min_codes: int | None) -> list[np.ndarray]:
    """Return the child bounds of each level above the leaves, the root first. Every ``nr_splits`` neighbouring nodes
    get one parent, until at most ``min_codes`` nodes are left, which become the children of the root. ``min_codes``
    defaults to ``nr_splits``; with 1 or less, all leaves are children of the root.
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
    """Return a matrix of children × parents (float32). By default, children are numbered in parent order."""
    rows = np.arange(splits[-1]) if children is None else children
    kind = np.int32 if rows.size < 2**31 else np.int64
    parts = np.ones(rows.size, np.float32), rows.astype(kind), splits.astype(kind)
    return csc_matrix(parts, shape=(rows.size, splits.size - 1))


def _as_csc(matrix: spmatrix | sparray, t: int) -> csc_matrix:
    """Return a copy as CSC with sorted rows and without explicit zeros."""
    if not issparse(matrix):
        raise InputError(
            f"matrix {t} of the cluster chain is not sparse", expected="a scipy sparse matrix, child × parent",
            received=type(matrix).__name__,
        )  # fmt: skip
    ours = csc_matrix(matrix, copy=True)
    ours.sum_duplicates()
    ours.eliminate_zeros()
    return ours


def _check_chain(matrices: list[csc_matrix]) -> None:
    """Raise an error unless the matrices fit together and each node has exactly one parent."""
    if not matrices:
        raise InputError("the cluster chain is empty", expected="at least one matrix", received="none")
    if matrices[0].shape[1] != 1:
        raise InputError(
            "the cluster chain does not start with one root", expected="a first matrix of one column",
            received=f"{matrices[0].shape[1]} columns",
            fix="give a single matrix of labels × clusters as a file; the levels above are then added",
        )  # fmt: skip
    for t, (above, matrix) in enumerate(pairwise(matrices), 1):
        if matrix.shape[1] != above.shape[0]:
            raise InputError(
                f"matrices {t - 1} and {t} of the cluster chain do not fit together",
                expected=f"{above.shape[0]} columns in matrix {t}, one per row of matrix {t - 1}",
                received=f"{matrix.shape[1]} columns",
                fix="the matrices belong to different trees: copy the folder again",
            )
    for t, matrix in enumerate(matrices):
        wrong = np.flatnonzero(np.bincount(matrix.indices, minlength=matrix.shape[0]) != 1)
        if wrong.size:
            columns = matrix.tocsr()[wrong[0]].indices
            name = f"label {wrong[0]}" if t == len(matrices) - 1 else f"node {wrong[0]} of level {t + 1}"
            parents = f"{columns.size} parents" if columns.size else "no parent"
            raise InputError(
                f"{name} has {parents} in matrix {t} of the cluster chain", expected="exactly one parent for each node",
                received=f"parents {columns[:8].tolist()}" if columns.size else "an empty row",
                fix="put each label into exactly one cluster",
            )  # fmt: skip


@dataclass(frozen=True, eq=False)
class LabelTree:
    """A tree over labels, in which the children of a node have consecutive numbers.

    Level 0 is the root, and level ``depth`` contains the labels. The children of node ``p`` of level ``t`` are at the
    positions ``[splits[t][p], splits[t][p + 1])`` of level ``t + 1``, and ``labels[i]`` is the label at position ``i``
    of the last level. The data of a cluster's labels are therefore contiguous in memory, in shards and in files.

    Example:
        >>> tree = LabelTree(splits=([0, 2], [0, 2, 5]), labels=[1, 4, 0, 2, 3])
        >>> tree.children(1, 1)
        range(2, 5)
        >>> tree.path(3)
        (0, 1)

    Args:
        splits: for each level above the labels, the bounds of its nodes' children.
        labels: the label at each position of the last level; ascending within a parent.
        node_order: for each level above the labels, the number that each node had in the chain from which the tree was
            read (default: the node's own number).
    """

    splits: tuple[np.ndarray, ...]
    labels: np.ndarray
    node_order: tuple[np.ndarray, ...] = ()

    def __post_init__(self) -> None:
        splits = tuple(_frozen(level, f"the splits of level {t}") for t, level in enumerate(self.splits))
        object.__setattr__(self, "splits", splits)
        object.__setattr__(self, "labels", _frozen(self.labels, "the labels of the tree"))
        _check_splits(self.splits, self.labels.size)
        _check_labels(self.splits[-1], self.labels)
        order = self.node_order or tuple(np.arange(size) for size in self.level_sizes[:-1])
        order = tuple(_frozen(level, f"the node order of level {t}") for t, level in enumerate(order))
        object.__setattr__(self, "node_order", order)
        if [level.size for level in order] != list(self.level_sizes[:-1]):
            raise InputError(
                "the node order does not fit the tree", expected=f"levels of {list(self.level_sizes[:-1])} nodes",
                received=f"{[level.size for level in order]}",
            )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        """Return True if both trees group the same labels in the same way. Original node numbers are ignored."""
        if not isinstance(other, LabelTree):
            return NotImplemented
        return (
            self.depth == other.depth
            and np.array_equal(self.labels, other.labels)
            and all(np.array_equal(a, b) for a, b in zip(self.splits, other.splits, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LabelTree({' > '.join(f'{size:,}' for size in self.level_sizes)})"

    @property
    def depth(self) -> int:
        """Number of levels of splits, which equals the length of the chain of matrices."""
        return len(self.splits)

    @property
    def nr_labels(self) -> int:
        """Number of labels."""
        return int(self.labels.size)

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """Number of nodes of each level, from the root (1) to the labels."""
        return (*(level.size - 1 for level in self.splits), self.nr_labels)

    @cached_property
    def inverse(self) -> np.ndarray:
        """Position of each label in the tree: ``inverse[labels[i]] == i``."""
        inverse = np.empty_like(self.labels)
        inverse[self.labels] = np.arange(self.nr_labels)
        inverse.flags.writeable = False
        return inverse

    def order_of(self, level: int) -> np.ndarray:
        """Return the original node numbers of a level in tree order: the columns of a PECOS weight matrix, or the
        labels.

        Args:
            level: level of the tree, from 0 (the root) to ``depth`` (the labels).
        """
        self._check(level, self.depth)
        return self.labels if level == self.depth else self.node_order[level]

    def children(self, level: int, node: int) -> range:
        """Return the positions of a node's children, which are at ``level + 1``.

        Args:
            level: level of the node; 0 is the root.
            node: position of the node at its level.
        """
        self._check(level, self.depth - 1, node)
        return range(int(self.splits[level][node]), int(self.splits[level][node + 1]))

    def parent(self, level: int, node: int) -> int:
        """Return the position of a node's parent, which is at ``level - 1``.

        Args:
            level: level of the node; 0 is the root.
            node: position of the node at its level.
        """
        if level == 0:
            raise InputError("the root has no parent", expected="a level of 1 or more", received="level 0")
        self._check(level, self.depth, node)
        return int(np.searchsorted(self.splits[level - 1], node, side="right") - 1)

    def path(self, label: int) -> tuple[int, ...]:
        """Return the nodes above a label, from the root (always 0) to its leaf cluster.

        Args:
            label: number of the label.
        """
        if not 0 <= label < self.nr_labels:
            most = self.nr_labels - 1
            raise InputError(f"the tree has no label {label}", expected=f"0 to {most}", received=str(label))
        node, nodes = int(self.inverse[label]), []
        for level in range(self.depth, 0, -1):
            node = self.parent(level, node)
            nodes.append(node)
        return tuple(reversed(nodes))

    def labels_under(self, level: int, node: int) -> np.ndarray:
        """Return all labels below a node, in tree order. For a node of the last level, return its label.

        Args:
            level: level of the node; 0 is the root.
            node: position of the node at its level.
        """
        self._check(level, self.depth, node)
        first, last = node, node + 1
        for splits in self.splits[level:]:
            first, last = int(splits[first]), int(splits[last])
        return self.labels[first:last]

    def under_one_root(self, level: int) -> Self:
        """Return the tree without the levels between the root and ``level``.

        Example:
            >>> LabelTree(splits=([0, 2], [0, 2, 5]), labels=[1, 4, 0, 2, 3]).under_one_root(2)
            LabelTree(1 > 5)

        Args:
            level: the level whose nodes become the root's children, at least 1.
        """
        self._check(level, self.depth, first=1)
        first = np.array([0, self.level_sizes[level]])
        if level == self.depth:  # the labels of a cluster are in ascending order
            return type(self)(splits=(first,), labels=np.arange(self.nr_labels))
        return type(self)(splits=(first, *self.splits[level:]), labels=self.labels)

    def to_chain(self) -> list[csc_matrix]:
        """Return the tree as matrices of children × parents (float32, CSC) with its own node numbers, the root first.
        The rows of the last matrix are the labels.
        """
        return [*map(cluster_matrix, self.splits[:-1]), cluster_matrix(self.splits[-1], self.labels)]

    @classmethod
    def from_chain(cls, chain: Sequence[spmatrix | sparray]) -> Self:
        """Build a tree from a chain of cluster matrices. The nodes of each level may be in any order.

        Args:
            chain: matrices from the root down; entry (i, j) of matrix t makes node i of level t + 1 a child of node j
                of level t. The rows of the last matrix are the labels.

        Returns:
            The tree; ``node_order`` contains the original number of each node.

        Raises:
            InputError: a node has several parents or none, or the matrices do not fit together.
        """
        matrices = [_as_csc(matrix, t) for t, matrix in enumerate(chain)]
        _check_chain(matrices)
        splits: list[np.ndarray] = []
        orders = [np.zeros(1, np.int64)]
        for matrix in matrices:
            indptr, indices = matrix.indptr.astype(np.int64), matrix.indices
            counts = np.diff(indptr)[orders[-1]]
            splits.append(np.concatenate(([0], np.cumsum(counts))))
            starts = np.repeat(indptr[:-1][orders[-1]] - splits[-1][:-1], counts)
            orders.append(indices[starts + np.arange(starts.size)].astype(np.int64))
        return cls(splits=tuple(splits), labels=orders[-1], node_order=tuple(orders[:-1]))

    def _check(self, level: int, last: int, node: int = 0, first: int = 0) -> None:
        if not first <= level <= last:
            raise InputError("the tree has no such level", expected=f"{first} to {last}", received=str(level))
        size = self.level_sizes[level]
        if not 0 <= node < size:
            problem = f"level {level} of the tree has no node {node}"
            raise InputError(problem, expected=f"0 to {size - 1}", received=str(node))


def _frozen(values: np.ndarray | Sequence[int], name: str) -> np.ndarray:
    """Return the numbers as a read-only int64 array, without a copy if they are int64 already."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"{name} are not a list of whole numbers", expected="one dimension of integers",
            received=f"{array.ndim} dimensions of {array.dtype}",
        )  # fmt: skip
    view = array.astype(np.int64, copy=False).view()
    view.flags.writeable = False
    return view


def _check_splits(splits: tuple[np.ndarray, ...], nr_labels: int) -> None:
    if not splits or nr_labels == 0:
        raise InputError("the tree is empty", expected="at least one level and one label", received="none")
    below = [level.size - 1 for level in splits[1:]] + [nr_labels]
    if splits[0].size != 2:
        roots = f"{splits[0].size - 1} nodes"
        raise InputError("the tree does not start with one root", expected="1 root", received=roots)
    for t, (level, size) in enumerate(zip(splits, below, strict=True)):
        if level.size < 2 or level[0] != 0 or level[-1] != size or np.any(level[1:] < level[:-1]):
            raise InputError(
                f"the splits of level {t} do not cover the nodes below", expected=f"numbers that rise from 0 to {size}",
                received=f"{level[:8].tolist()}{'…' if level.size > 8 else ''}",
            )  # fmt: skip


def _check_labels(leaves: np.ndarray, labels: np.ndarray) -> None:
    seen = np.zeros(labels.size, np.bool_)
    seen[labels[(labels >= 0) & (labels < labels.size)]] = True
    if not seen.all():
        raise InputError(
            f"label {np.flatnonzero(~seen)[0]} is not in the tree",
            expected=f"each label from 0 to {labels.size - 1} once", received="other labels twice, or out of range",
        )  # fmt: skip
    falls = np.flatnonzero(labels[1:] < labels[:-1]) + 1
    inner = falls[~np.isin(falls, leaves)]
    if inner.size:
        cluster = int(np.searchsorted(leaves, inner[0], side="right") - 1)
        raise InputError(
            f"the labels of leaf cluster {cluster} are not in ascending order",
            expected="ascending labels within a cluster, so that each tree has only one form",
            received=f"{labels[inner[0] - 1]} before {labels[inner[0]]}",
        )
