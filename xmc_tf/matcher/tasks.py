"""The inputs of fine-tuning: the data, the settings, and the training targets of each level of the tree."""

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
    """Documents that are held out from training to measure the model during training."""

    store: TokenStore
    Y: spmatrix


@dataclass(frozen=True, eq=False)
class MatcherData:
    """The training data of a matcher: documents, labels and tree."""

    store: TokenStore
    Y: spmatrix  # documents × labels; nonzero entries are the labels of a document
    tree: LabelTree
    pad_id: int  # the tokenizer's id of the padding token
    rows: np.ndarray | None = None  # the documents to train on; None: all
    validation: Validation | None = None  # if given, each level ends with its best state
    names: Sequence[str] | None = None  # for TensorBoard's projector


@dataclass(frozen=True)
class MatcherSettings:
    """The settings for training a matcher."""

    params: MatcherParams | Sequence[MatcherParams]
    pred_params: MatcherPredParams | Sequence[MatcherPredParams] = field(default_factory=MatcherPredParams)
    max_match_clusters: int = 32768  # larger levels are left to the rankers
    seed: int = 0


@dataclass(frozen=True, eq=False)
class LevelTask:
    """The training targets of one level of the tree."""

    level: int  # 1 for the children of the root
    splits: np.ndarray  # splits[p] to splits[p + 1] - 1: the children of parent p; the top level has one parent
    targets: csr_matrix  # documents × nodes in tree order, float32, sorted, without zeros: the weight of each positive

    @property
    def nr_nodes(self) -> int:
        return int(self.targets.shape[1])

    @property
    def nr_parents(self) -> int:
        """Number of nodes of the level above; 1 at the top."""
        return len(self.splits) - 1

    @property
    def nr_documents(self) -> int:
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
    """Return the levels to fine-tune, from the top. Targets are 1 or, with ``weights``, the number of true labels."""
    deepest = deepest_level(tree, max_match_clusters)
    values = csr_matrix(Y, dtype=np.float32, copy=True)
    values.sum_duplicates()
    values.eliminate_zeros()
    values.data[:] = 1
    in_tree_order = tree.inverse[values.indices].astype(values.indices.dtype)
    values = csr_matrix((values.data, in_tree_order, values.indptr), shape=values.shape)
    values.sort_indices()
    tasks: list[LevelTask] = []
    for level in range(tree.depth, 0, -1):
        if level <= deepest:
            targets = values if weights else values.copy()
            if not weights:
                targets.data[:] = 1
            tasks.insert(0, LevelTask(level, tree.splits[level - 1], targets))
        if level > 1:
            # The sums over the children of each node of the level above.
            splits = tree.splits[level - 1]
            parent_of = np.repeat(np.arange(len(splits) - 1, dtype=values.indices.dtype), np.diff(splits))
            parts = values.data.copy(), parent_of[values.indices], values.indptr.copy()
            values = csr_matrix(parts, shape=(values.shape[0], len(splits) - 1))
            values.sum_duplicates()
    return tasks
