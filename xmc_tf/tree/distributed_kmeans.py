"""Construction of the label tree over ranks: ranks share the nodes of the upper levels; below, each has own sub-trees.

The tree has ``2**d`` sub-trees, and rank r gets those from ``r * 2**d / N`` on. A node above them is split by the ranks
that have sub-trees of it: a wide node by all of them, each computing its part of every step; a narrow node by each of
them alone, because sharing would save no time. So a rank holds, besides the mapped embeddings, only the labels of the
nodes above its own sub-trees.

Every node is split from its own labels, with its own random state and in the same order of sums, so the tree equals
that of ``build_tree`` bit by bit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data.features import Features
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.tree.grouping import binary_depth
from xmc_tf.tree.kmeans import node_course, node_seeds, sample_rate, split_level, tree_of_order, worth_renumbering
from xmc_tf.tree.kmeans_levels import BinaryLevel, first_level, level_of_nodes
from xmc_tf.tree.kmeans_wide import SplitSteps, TeamMember
from xmc_tf.tree.label_tree import LabelTree
from xmc_tf.tree.threads import ThreadPool

# Sub-trees per rank: their sizes differ by one label, so a few are enough to balance the ranks.
_SUB_TREES_A_RANK = 8
# Each rank splits smaller nodes by itself, which takes about an eighth of a second.
SHARED_ENTRIES = 6_000_000


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
    shares = [share_of(rank, communicator.size, depth) for rank in range(communicator.size)]
    share = shares[communicator.rank]
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
            level = _split(communicator, shares, level, t, depth, params, pool)
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

    def part_of(self, node: int, t: int) -> int:
        """Return how many sub-trees of a node of level ``t`` the rank has (``t`` is at most ``depth``)."""
        shift = self.depth - t
        return max(0, min(self.last, (node + 1) << shift) - max(self.first, node << shift))


def share_of(rank: int, size: int, depth: int) -> RankSubTrees:
    """Return the sub-trees of one of ``size`` ranks in a tree of ``depth`` binary levels."""
    level = min(depth, _log2_up(_SUB_TREES_A_RANK * size))
    return RankSubTrees(level, (rank << level) // size, ((rank + 1) << level) // size)


def any_shared(shares: Sequence[RankSubTrees], t: int) -> bool:
    """Return whether two ranks share a node of level ``t``; if not, no rank has to wait for another."""
    held = [share.holds(t) for share in shares if share.any]
    return any(one.stop > other.start for one, other in pairwise(held))


def _split(
    communicator: Communicator,
    shares: Sequence[RankSubTrees],
    level: BinaryLevel | None,
    t: int,
    depth: int,
    params: HierarchicalKMeansParams,
    pool: ThreadPool,
) -> BinaryLevel | None:
    """Split level ``t`` and return this rank's part of the next one."""
    share, rate = shares[communicator.rank], sample_rate(params, t, depth)
    held, courses = share.holds(t), {}
    if level is not None:
        left = np.empty(level.entries.order.size, np.bool_)
        seeds = node_seeds(params.seed, t, 1 << t)[held.start : held.stop]
    if any_shared(shares, t):
        if level is not None:
            for node, team in _wide_teams(shares, communicator.rank, level, t).items():
                seat = TeamMember(list(team).index(communicator.rank), np.array(list(team.values())))
                course = node_course(level, node - held.start, rate, seeds, params, pool, left, seat)
                courses[node] = (course, list(team))
        _run_in_step(communicator, courses)
    if level is None:
        return None
    alone = [node - held.start for node in held if node not in courses]
    if alone:  # contiguous: a rank can share only its first and its last node
        split_level(level, rate, seeds, params, pool, left, range(alone[0], alone[-1] + 1))
    level.halve(left)
    kept = share.holds(t + 1)
    level = level.part(kept.start - 2 * held.start, kept.stop - 2 * held.start)
    if worth_renumbering(t, depth):
        level.drop_unshared(pool)
    return level


def _wide_teams(shares: Sequence[RankSubTrees], rank: int, level: BinaryLevel, t: int) -> dict[int, dict[int, int]]:
    """Return the wide nodes that this rank shares: for each, the ranks and how many of its sub-trees each rank has."""
    held, before, found = shares[rank].holds(t), level.work_before(), {}
    for node in {held.start, held.stop - 1}:
        team = {other: part for other, share in enumerate(shares) if (part := share.part_of(node, t)) > 0}
        entries = before[node - held.start + 1] - before[node - held.start]
        if len(team) > 1 and entries > SHARED_ENTRIES:
            found[node] = team
    return found


def _run_in_step(communicator: Communicator, courses: Mapping[int, tuple[SplitSteps, Sequence[int]]]) -> None:
    """Advance courses in step with the ranks that share them; all ranks call it.

    Args:
        communicator: the ranks.
        courses: for each node its course, and the ranks that share it in the order of their seats.
    """
    found = {node: part for node, (course, _) in courses.items() if (part := next(course, None)) is not None}
    while True:
        parts = [
            {node: part for node, part in found.items() if other != communicator.rank and other in courses[node][1]}
            for other in range(communicator.size)
        ]
        received = communicator.alltoall([(bool(found), of_rank) for of_rank in parts])
        if not any(running for running, _ in received):
            return
        for node, part in list(found.items()):
            course, team = courses[node]
            try:
                found[node] = course.send([part if r == communicator.rank else received[r][1][node] for r in team])
            except StopIteration:
                del found[node]


def _log2_up(number: int) -> int:
    return (number - 1).bit_length()
