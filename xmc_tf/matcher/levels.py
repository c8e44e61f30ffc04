"""The inputs of fine-tuning: data, settings, and the levels of the tree, whose labels are sums up the tree."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import TokenStore
from xmc_tf.params import MatcherParams, MatcherPredParams
from xmc_tf.tree import LabelTree


class Validation(NamedTuple):
    """Documents that are not trained on, to measure the model during training.

    Attributes:
        store: their tokens.
        Y: their labels, documents × labels.
    """

    store: TokenStore
    Y: spmatrix


@dataclass(frozen=True, eq=False)
class MatcherData:
    """The documents, labels and tree that a matcher is trained on.

    Args:
        store: tokens of the documents. Each window is trained on as if it were a document with all of the document's
            labels.
        Y: documents × labels; an entry makes the label positive.
        tree: tree over the labels.
        pad_id: token id that fills the space behind a document's end; the tokenizer's.
        rows: numbers of the documents to train on, if some are held out. Default: all.
        validation: documents to validate on; with them, the state that scored best is kept of each level.
        names: label names for TensorBoard's projector. Default: the label numbers.
    """

    store: TokenStore
    Y: spmatrix
    tree: LabelTree
    pad_id: int
    rows: np.ndarray | None = None
    validation: Validation | None = None
    names: Sequence[str] | None = None


@dataclass(frozen=True)
class MatcherSettings:
    """The settings of a matcher's training.

    Args:
        params: training parameters, one set for all levels or one per level.
        pred_params: prediction parameters of the levels, in the same form; they decide the negatives that a level
            predicts for the next one, and what validation measures.
        max_match_clusters: the maximum number of nodes of a level that is fine-tuned. Larger levels are left to the
            rankers, which need less memory and time per node.
        seed: seed of everything random.
    """

    params: MatcherParams | Sequence[MatcherParams]
    pred_params: MatcherPredParams | Sequence[MatcherPredParams] = field(default_factory=MatcherPredParams)
    max_match_clusters: int = 32768
    seed: int = 0


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


def levels_of(tree: LabelTree, Y: spmatrix, *, max_match_clusters: int, weights: bool = False) -> list[LevelTask]:
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
        weights: whether a positive's weight is the number of the document's labels that the node contains, not 1.

    Returns:
        One task per level, the top first.
    """
    deepest = deepest_level(tree, max_match_clusters)
    labels = _canonical(Y)
    labels.data[:] = 1
    values = _in_tree_order(labels, tree)
    tasks: list[LevelTask] = []
    for level in range(tree.depth, 0, -1):
        if level <= deepest:
            targets = values if weights else values.copy()
            if not weights:
                targets.data[:] = 1
            tasks.insert(0, LevelTask(level, tree.splits[level - 1], targets))
        if level > 1:
            values = _to_parents(values, tree.splits[level - 1])
    return tasks


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
