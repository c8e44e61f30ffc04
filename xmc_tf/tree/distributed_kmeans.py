"""The label tree over ranks: the nodes of the upper levels are shared out, then every rank has sub-trees of its own.

The tree's ``2**d`` sub-trees are ranges of ranks: rank r has those from ``r * 2**d / N`` on. Above them a node belongs
to the rank that has its first sub-tree; the others wait for its answer (a bit a label), since they go on with a part of
that node. So a rank holds, besides the mapped embeddings, nothing but the labels of the nodes above its own sub-trees.

Every node is split from its own labels by its own random state, in the same order of sums: the tree is that of
``build_tree``, bit by bit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from xmc_tf.collective.communicator import Communicator
from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data.features import Features
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.tree.grouping import binary_depth, half_bounds
from xmc_tf.tree.kmeans import node_seeds, sample_rate, split_level, tree_of_order, worth_renumbering
from xmc_tf.tree.kmeans_levels import Level, first_level, level_of_nodes
from xmc_tf.tree.label_tree import LabelTree
from xmc_tf.tree.threads import Workers

# Sub-trees a rank: their sizes differ by one label, so a few are enough to give every rank its share.
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
    """Builds the label tree with all ranks; the same one for any number of them.

    Args:
        communicator: the ranks.
        embeddings: one row a label, the same on all ranks, best mapped.
        params: how to cluster.
        sub_embeddings: gives other embeddings, by which the labels are clustered within the sub-trees; None: the same.
        min_n_sub_tree: where there are such, at least so many sub-trees change to them.
        threads: of this rank.
    """
    if min_n_sub_tree < 1:
        raise InputError(
            "min_n_sub_tree is out of range", expected="a whole number from 1 on", received=str(min_n_sub_tree)
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
    with Workers(threads) as workers, title as progress:
        level = first_level(embeddings, workers) if share.any else None
        for t in range(depth):
            if t == change and sub_embeddings is not None:
                features = sub_embeddings()  # made by all ranks
                level = level_of_nodes(features, level, workers) if level is not None else None
            level = _split(communicator, share, level, t, depth, embeddings.nr_rows, params, workers)
            progress.add(embeddings.nr_rows)
    mine = level.entries.order if level is not None else np.zeros(0, np.int64)
    return tree_of_order(np.concatenate(communicator.allgather(mine)), depth, params)


@dataclass(frozen=True)
class Share:
    """The sub-trees of a rank, and so its part of every level.

    Args:
        depth: the level that the sub-trees begin at.
        first: the rank's first sub-tree.
        last: the one behind its last.
    """

    depth: int
    first: int
    last: int

    @property
    def any(self) -> bool:
        """Whether the rank has any; of few labels there may be fewer sub-trees than ranks."""
        return self.last > self.first

    def holds(self, t: int) -> range:
        """The nodes of level ``t`` that the rank has some labels of."""
        if t >= self.depth:
            return range(self.first << (t - self.depth), self.last << (t - self.depth))
        shift = self.depth - t
        return range(self.first >> shift, -(-self.last >> shift))

    def splits(self, t: int) -> range:
        """The nodes of level ``t`` that the rank splits: those whose first sub-tree it has."""
        if t >= self.depth:
            return self.holds(t)
        shift = self.depth - t
        return range(-(-self.first >> shift), -(-self.last >> shift))


def share_of(rank: int, size: int, depth: int) -> Share:
    """What one of ``size`` ranks has of a tree of ``depth`` binary levels."""
    level = min(depth, _log2_up(_SUB_TREES_A_RANK * size))
    return Share(level, (rank << level) // size, ((rank + 1) << level) // size)


def _split(
    communicator: Communicator,
    share: Share,
    level: Level | None,
    t: int,
    depth: int,
    nr_labels: int,
    params: HierarchicalKMeansParams,
    workers: Workers,
) -> Level | None:
    """Splits level ``t``; returns this rank's part of the next one."""
    held, split = share.holds(t), share.splits(t)
    left = np.zeros(0, np.bool_)
    own = slice(0, 0)
    if level is not None:
        left = np.empty(level.entries.order.size, np.bool_)
        seeds = node_seeds(params.seed, t, 1 << t)[held.start : held.stop]
        if len(split):
            nodes = range(split.start - held.start, split.stop - held.start)
            split_level(level, sample_rate(params, t, depth), seeds, params, workers, left, nodes)
            own = slice(int(level.starts[nodes.start]), int(level.starts[nodes.stop]))
    if t < share.depth:
        answers = communicator.allgather((np.packbits(left[own]), own.stop - own.start))
        if level is not None:
            everyones = np.concatenate([np.unpackbits(bits, count=count) for bits, count in answers]).astype(np.bool_)
            bounds = half_bounds(nr_labels, t)
            left = everyones[bounds[held.start] : bounds[held.stop]]
    if level is None:
        return None
    level.halve(left)
    kept = share.holds(t + 1)
    level = level.part(kept.start - 2 * held.start, kept.stop - 2 * held.start)
    if worth_renumbering(t, depth):
        level.drop_unshared(workers)
    return level


def _log2_up(number: int) -> int:
    return (number - 1).bit_length()
