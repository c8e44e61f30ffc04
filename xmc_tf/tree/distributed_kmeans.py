"""Construction of the label tree over ranks: each rank has own sub-trees, and splits the nodes above them.

The tree has ``2**d`` sub-trees, and rank r gets those from ``r * 2**d / N`` on. A node above them is split by each rank
that has sub-trees of it, which takes a few of the tree's levels and no messages. So a rank holds, besides the mapped
embeddings, only the labels of the nodes above its own sub-trees.

Every node is split from its own labels, with its own random state and in the same order of sums, so the tree equals
that of ``build_tree`` bit by bit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data.features import Features
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.tree.grouping import binary_depth
from xmc_tf.tree.kmeans import node_seeds, sample_rate, split_level, tree_of_order, worth_renumbering
from xmc_tf.tree.kmeans_levels import BinaryLevel, first_level, level_of_nodes
from xmc_tf.tree.label_tree import LabelTree
from xmc_tf.tree.threads import ThreadPool

# Sub-trees per rank: their sizes differ by one label, so a few are enough to balance the ranks.
_SUB_TREES_A_RANK = 8


def build_tree_over_ranks(
    communicator: Communicator,
    embeddings: Features,
    params: HierarchicalKMeansParams,
    *,
    sub_embeddings: Callable[[], Features] | None = None,
    min_n_sub_tree: int = 16,
    threads: int = -1,
) -> LabelTree:
    """Build the label tree with all ranks; the result does not depend on their number.

    Args:
        communicator: the ranks.
        embeddings: one row per label, the same on all ranks, preferably mapped.
        params: the clustering parameters.
        sub_embeddings: returns the embeddings that cluster the labels within the sub-trees; None: ``embeddings``.
        min_n_sub_tree: with ``sub_embeddings``, the minimum number of sub-trees that use them.
        threads: number of threads of this rank; -1: one per core.
    """
    if min_n_sub_tree < 1:
        raise InputError(
            "min_n_sub_tree is out of range", expected="a whole number of at least 1", received=str(min_n_sub_tree)
        )
    depth = binary_depth(embeddings.nr_rows, params.max_leaf_size)
    if depth == 0:
        return tree_of_order(np.arange(embeddings.nr_rows), depth, params)
    change = min(_log2_up(min_n_sub_tree), depth) if sub_embeddings is not None else depth
    share = share_of(communicator.rank, communicator.size, depth)
    title = Progress(
        "clustering the labels",
        total=embeddings.nr_rows * depth,
        unit="halvings",
        quiet_s=2.0 if communicator.rank == 0 else float("inf"),
    )
    with ThreadPool(threads) as pool, title as progress:
        level = first_level(embeddings, pool) if share.any else None
        for t in range(depth):
            if t == change and sub_embeddings is not None:
                features = sub_embeddings()  # all ranks compute them
                level = level_of_nodes(features, level, pool) if level is not None else None
            level = None if level is None else _split(share, level, t, depth, params, pool)
            progress.add(embeddings.nr_rows)
    mine = level.entries.order if level is not None else np.zeros(0, np.int64)
    return tree_of_order(np.concatenate(communicator.allgather(mine)), depth, params)


@dataclass(frozen=True)
class RankSubTrees:
    """The sub-trees of a rank, and so its part of every level.

    Args:
        depth: the level at which the sub-trees begin.
        first: the rank's first sub-tree.
        last: the end of its sub-trees (exclusive).
    """

    depth: int
    first: int
    last: int

    @property
    def any(self) -> bool:
        """True if the rank has sub-trees; with few labels there may be fewer sub-trees than ranks."""
        return self.last > self.first

    def holds(self, t: int) -> range:
        """Return the nodes of level ``t`` of which the rank has labels."""
        if t >= self.depth:
            return range(self.first << (t - self.depth), self.last << (t - self.depth))
        shift = self.depth - t
        return range(self.first >> shift, -(-self.last >> shift))


def share_of(rank: int, size: int, depth: int) -> RankSubTrees:
    """Return the sub-trees of one of ``size`` ranks in a tree of ``depth`` binary levels."""
    level = min(depth, _log2_up(_SUB_TREES_A_RANK * size))
    return RankSubTrees(level, (rank << level) // size, ((rank + 1) << level) // size)


def _split(
    share: RankSubTrees, level: BinaryLevel, t: int, depth: int, params: HierarchicalKMeansParams, pool: ThreadPool
) -> BinaryLevel:
    """Split this rank's part of level ``t`` and return its part of the next one."""
    held, kept = share.holds(t), share.holds(t + 1)
    left = np.empty(level.entries.order.size, np.bool_)
    seeds = node_seeds(params.seed, t, 1 << t)[held.start : held.stop]
    split_level(level, sample_rate(params, t, depth), seeds, params, pool, left)
    level.halve(left)
    level = level.part(kept.start - 2 * held.start, kept.stop - 2 * held.start)
    if worth_renumbering(t, depth):
        level.drop_unshared(pool)
    return level


def _log2_up(number: int) -> int:
    return (number - 1).bit_length()
