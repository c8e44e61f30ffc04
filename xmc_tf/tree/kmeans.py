"""Hierarchical 2-means: halve the labels repeatedly into a balanced tree of similar labels. Each rank builds a range of
sub-trees and also splits all nodes above them, so the ranks exchange no messages. Each node has its own random state
and a fixed order of sums, so the tree does not depend on the number of ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import sparray, spmatrix

from xmc_tf.common.compiled import kernel
from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data.features import Features, as_features
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.solo import Solo
from xmc_tf.tree import kmeans_kernels, kmeans_nodes
from xmc_tf.tree.kmeans_kernels import Halving, LabelEntries
from xmc_tf.tree.kmeans_nodes import half_of, keep_shared, row_squares, split_nodes
from xmc_tf.tree.label_tree import LabelTree, binary_depth, half_bounds, upper_splits
from xmc_tf.tree.threads import ThreadPool, even_cuts, read_only


@dataclass
class BinaryLevel:
    """The nodes of one binary level. The labels of a node are contiguous, and those without features come last."""

    starts: np.ndarray  # where the labels of each node begin
    empties: np.ndarray  # number of labels without features in each node
    widths: np.ndarray  # number of sparse features of each node
    entries: LabelEntries
    _spare: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)
    _owned: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)

    @property
    def nr_nodes(self) -> int:
        return self.starts.size - 1

    @property
    def filled(self) -> np.ndarray:
        """Number of labels with features in each node."""
        return np.diff(self.starts) - self.empties

    def work_before(self) -> np.ndarray:
        """Return the cumulative work (roughly, the number of entries) before each node, and after the last one."""
        lengths = self.entries.end - self.entries.begin + self.entries.dense.shape[1] + 8
        return np.concatenate(([0], np.cumsum(lengths)))[self.starts]

    def halve(self, left: np.ndarray) -> None:
        """Split each node: labels for which ``left`` is true go to the left child, the others to the right one."""
        node = np.repeat(np.arange(self.nr_nodes), np.diff(self.starts))
        places = np.argsort(2 * node + ~left, kind="stable")
        self.entries = _at_places(self.entries, places)
        starts = np.empty(2 * self.starts.size - 1, np.int64)
        starts[0::2], starts[1::2] = self.starts, (self.starts[:-1] + self.starts[1:]) >> 1
        empties = np.empty(2 * self.empties.size, np.int64)
        empties[0::2], empties[1::2] = self.empties // 2, self.empties - self.empties // 2
        self.starts, self.empties, self.widths = starts, empties, np.repeat(self.widths, 2)

    def part(self, first: int, last: int) -> "BinaryLevel":
        """Return a level with only the nodes ``[first, last)``."""
        if first == 0 and last == self.nr_nodes:
            return self
        low, high = int(self.starts[first]), int(self.starts[last])
        entries = _at_places(self.entries, np.arange(low, high))
        starts = self.starts[first : last + 1] - low
        return BinaryLevel(starts, self.empties[first:last], self.widths[first:last].copy(), entries)

    def drop_unshared(self, pool: ThreadPool) -> None:
        """Keep only the features that at least two labels of a node share, and renumber them."""
        offsets = np.concatenate(([0], np.cumsum(self.entries.end - self.entries.begin)))
        size = int(offsets[-1])
        # Two pairs of arrays take turns, because allocating fresh memory costs as much as the work itself.
        indices, values = self._spare or (np.empty(size, np.uint32), np.empty(size, np.float32))
        pool.run(
            lambda first, last: keep_shared(
                first, last, self.starts, self.widths, offsets[self.starts], self.entries, indices, values
            ),
            even_cuts(self.work_before(), pool.parts),
        )  # fmt: skip
        self._spare, self._owned = self._owned, (indices, values)
        columns = {"indices": read_only(indices, np.uint32), "values": read_only(values, np.float32)}
        self.entries = self.entries._replace(**columns)


def _at_places(entries: LabelEntries, places: np.ndarray) -> LabelEntries:
    """Return the labels at these places, in this order. Their features are not moved."""
    names = ("begin", "end", "order", "private", "norms")
    return entries._replace(**{name: getattr(entries, name)[places] for name in names})


def first_level(features: Features, pool: ThreadPool) -> BinaryLevel:
    """Return the root level: all labels in one node."""
    nr_labels, sparse, width = features.nr_rows, features.sparse, features.nr_sparse
    dense = read_only(np.zeros((nr_labels, 0)) if features.dense is None else features.dense, np.float32)
    indices: np.ndarray
    if sparse is None:
        indptr, indices, values = np.zeros(nr_labels + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
    else:
        indptr, indices, values = sparse.indptr.astype(np.int64), sparse.indices, sparse.data
    if width >= 2**31:
        used, indices = np.unique(indices, return_inverse=True)
        width = used.size
    values = read_only(values, np.float32)
    squares = np.empty(nr_labels, np.float64)
    work = indptr + np.arange(nr_labels + 1) * (dense.shape[1] + 8)
    pool.run(lambda low, high: row_squares(low, high, indptr, values, dense, squares), even_cuts(work, pool.parts))
    if (wrong := np.flatnonzero(~np.isfinite(squares))).size:
        first = features.rows(wrong[:1])
        parts = [[] if first.sparse is None else first.sparse.data, [] if first.dense is None else first.dense.ravel()]
        numbers = np.concatenate(parts)
        number = numbers[~np.isfinite(numbers)][0]
        raise InputError(
            f"the embedding of label {wrong[0]} holds {number}", expected="finite numbers",
            received=f"{number} in {wrong.size:,} of {squares.size:,} embeddings",
            fix="check the features of the documents and of the labels",
        )  # fmt: skip
    # Scaled so that squares of sums fit a float32 for any unit of the features; the tree stays the same.
    largest = float(np.sqrt(squares.max()))
    if largest > 0 and not 1e-9 < largest < 1e9:
        factor = np.float32(1.0 / largest)
        values, dense = read_only(values * factor, np.float32), read_only(dense * factor, np.float32)
        squares /= largest**2
    order = np.argsort(squares == 0, kind="stable")
    indices = read_only(read_only(indices, np.int32).view(np.uint32), np.uint32)
    private, norms = np.zeros(nr_labels, np.float32), np.sqrt(squares[order]).astype(np.float32)
    entries = LabelEntries(indptr[:-1][order], indptr[1:][order], indices, values, dense, order, private, norms)
    sizes = [0, nr_labels], [np.count_nonzero(squares == 0)], [width]
    starts, empties, widths = (np.array(size, np.int64) for size in sizes)
    return BinaryLevel(starts, empties, widths, entries)


def level_of_nodes(features: Features, level: BinaryLevel, pool: ThreadPool) -> BinaryLevel:
    """Return a level with the nodes of ``level``, in which the labels have the given features."""
    root = first_level(features, pool)
    place = np.empty(features.nr_rows, np.int64)
    place[root.entries.order] = np.arange(features.nr_rows)
    empty, node = np.zeros(features.nr_rows, np.bool_), np.repeat(np.arange(level.nr_nodes), np.diff(level.starts))
    empty[root.entries.order[root.entries.order.size - int(root.empties[0]) :]] = True
    order = level.entries.order
    order = order[np.argsort(2 * node + empty[order], kind="stable")]
    empties = np.bincount(node, empty[order], level.nr_nodes).astype(np.int64)
    entries = _at_places(root.entries, place[order])
    changed = BinaryLevel(level.starts, empties, np.repeat(root.widths, level.nr_nodes), entries)
    changed.drop_unshared(pool)
    return changed


# For nodes with fewer entries, synchronizing all threads after every step costs more than it saves.
WIDE_ENTRIES = 400_000
# Sub-trees per rank: their sizes differ by one label, so a few are enough to balance the ranks.
_SUB_TREES_A_RANK = 8
# Smaller tasks are done before another thread wakes up. Task sizes do not change the result.
_LABELS_OF_A_TASK = 200
_BLOCKS_OF_A_TASK = 64

_add_rows, _begin_halving = kernel(kmeans_kernels.add_rows), kernel(kmeans_kernels.begin_halving)
_centroid_weights, _change_sides = kernel(kmeans_kernels.centroid_weights), kernel(kmeans_kernels.change_sides)
_measure_blocks, _pick_doubtful = kernel(kmeans_kernels.measure_blocks), kernel(kmeans_kernels.pick_doubtful)
_score, _settle = kernel(kmeans_kernels.score), kernel(kmeans_kernels.settle)
_turn_blocks, _turn_private = kernel(kmeans_kernels.turn_blocks), kernel(kmeans_kernels.turn_private)
_first_direction, _first_sides = kernel(kmeans_nodes.first_direction), kernel(kmeans_nodes.first_sides)
_place_evenly = kernel(kmeans_nodes.place_evenly)


def build_tree(
    embeddings: spmatrix | sparray | np.ndarray | Features, params: HierarchicalKMeansParams | None = None,
    communicator: Communicator | None = None, *, sub_embeddings: Callable[[], Features] | None = None,
    min_n_sub_tree: int = 16, threads: int | None = None, wide_entries: int = WIDE_ENTRIES,
) -> LabelTree:  # fmt: skip
    """Build the label tree by balanced hierarchical 2-means. All ranks must call this function. ``sub_embeddings``
    returns the embeddings to use once the labels are split into at least ``min_n_sub_tree`` sub-trees. All threads work
    on each node where nodes have more than ``wide_entries`` entries. The tree depends neither on this nor on the number
    of threads or ranks.
    """
    params, communicator = params or HierarchicalKMeansParams(), communicator or Solo()
    features = as_features(embeddings)
    nr_labels = features.nr_rows
    if nr_labels == 0:
        raise InputError("there are no labels to build a tree from", expected="at least one embedding", received="0")
    if min_n_sub_tree < 1:
        wanted = "a whole number of at least 1"
        raise InputError("min_n_sub_tree is out of range", expected=wanted, received=str(min_n_sub_tree))
    depth = binary_depth(nr_labels, params.max_leaf_size)
    if depth == 0:
        return _tree_of_order(np.arange(nr_labels), depth, params)
    change = min(_log2_up(min_n_sub_tree), depth)
    share = share_of(communicator.rank, communicator.size, depth)
    quiet_s = 2.0 if communicator.rank == 0 else float("inf")
    with (
        ThreadPool(params.threads if threads is None else threads) as pool,
        Progress("clustering the labels", nr_labels * depth, "steps", quiet_s) as progress,
    ):
        level = first_level(features, pool) if share.any else None
        for t in range(depth):
            if t == change and sub_embeddings is not None:
                features = sub_embeddings()  # all ranks compute them
                level = level_of_nodes(features, level, pool) if level is not None else None
            level = None if level is None else split_level(share, level, t, depth, params, pool, wide_entries)
            progress.add(nr_labels)
    mine = level.entries.order if level is not None else np.zeros(0, np.int64)
    return _tree_of_order(np.concatenate(communicator.allgather(mine)), depth, params)


@dataclass(frozen=True)
class RankSubTrees:
    """The range of sub-trees that a rank builds, which also determines its part of every level."""

    depth: int  # the level at which the sub-trees begin
    first: int
    last: int  # exclusive

    @property
    def any(self) -> bool:
        """Whether this rank has sub-trees. If there are fewer sub-trees than ranks, some ranks have none."""
        return self.last > self.first

    def holds(self, t: int) -> range:
        """Return the nodes of level ``t`` that contain labels of this rank."""
        if t >= self.depth:
            return range(self.first << (t - self.depth), self.last << (t - self.depth))
        shift = self.depth - t
        return range(self.first >> shift, -(-self.last >> shift))


def share_of(rank: int, size: int, depth: int) -> RankSubTrees:
    level = min(depth, _log2_up(_SUB_TREES_A_RANK * size))
    return RankSubTrees(level, (rank << level) // size, ((rank + 1) << level) // size)


def split_level(
    share: RankSubTrees, level: BinaryLevel, t: int, depth: int, params: HierarchicalKMeansParams, pool: ThreadPool,
    wide_entries: int,
) -> BinaryLevel:  # fmt: skip
    """Split this rank's part of level ``t`` and return its part of the next level."""
    held, kept = share.holds(t), share.holds(t + 1)
    # A node's random state depends only on the seed and the node's place.
    seeds = np.random.SeedSequence([params.seed, t]).generate_state(1 << t, np.uint64)[held.start : held.stop]
    filled, before = level.filled, level.work_before()
    wanted = np.ceil(sample_rate(params, t, depth) * filled).astype(np.int64)
    shares = np.minimum(filled, np.maximum(2, wanted))
    left = np.empty(level.entries.order.size, np.bool_)
    # Both branches compute the same steps on the same numbers; they differ in which thread does what.
    if level.nr_nodes >= pool.threads or before[-1] <= wide_entries * level.nr_nodes:
        pool.run(
            lambda first, last: split_nodes(
                first, last, level.starts, level.empties, level.widths, shares, seeds, level.entries, params.spherical,
                params.kmeans_max_iter, left,
            ),
            even_cuts(before, pool.parts),
        )  # fmt: skip
    else:
        for node in range(level.nr_nodes):
            _split_wide(level, node, int(shares[node]), seeds[node : node + 1], params, pool, left)
    level.halve(left)
    level = level.part(kept.start - 2 * held.start, kept.stop - 2 * held.start)
    # Renumbering costs about what it saves on the next level, and pays off on the one after. It sets the order of sums.
    if t % 2 == 1 and t < depth - 1:
        level.drop_unshared(pool)
    return level


def _split_wide(
    level: BinaryLevel, node: int, share: int, seed: np.ndarray, params: HierarchicalKMeansParams, pool: ThreadPool,
    left: np.ndarray,
) -> None:  # fmt: skip
    """Split a node with all threads; the result is bit-identical to that of `kmeans_nodes.halve`. ``share`` labels
    determine the centroids.
    """
    start, stop = int(level.starts[node]), int(level.starts[node + 1])
    filled, take = _place_evenly(start, stop, int(level.empties[node]), left)
    if filled < 2:
        return
    width = int(level.widths[node]) + level.entries.dense.shape[1]
    halving = _begin_halving(start, filled, share, width, seed.copy())
    steps, half = _Steps(level.entries, halving, pool), half_of(take, share, filled)
    steps.add(2)
    _first_direction(halving)
    steps.score(share)
    _first_sides(halving, half)
    turned, moved = 0.0, share
    for _ in range(params.kmeans_max_iter):
        steps.add(moved)
        turned += steps.turn(params.spherical)
        doubtful, wanted = _pick_doubtful(level.entries, halving, turned, half)
        steps.score(doubtful)
        _settle(halving, doubtful, wanted, turned)
        moved = _change_sides(halving)
        if moved == 0:
            break
    if share < filled:  # the direction found on the sample decides for the other labels
        everyone = _begin_halving(start, filled, filled, width, np.zeros(1, np.uint64))
        everyone.direction[:] = halving.direction
        everyone.own[halving.rows - start] = halving.own
        _Steps(level.entries, everyone, pool).score(filled)
        _settle(everyone, filled, take, 0.0)
        left[start : start + filled] = everyone.goes
    else:
        left[start : start + filled] = halving.left


class _Steps:
    """The steps of 2-means on one node, each divided among the threads."""

    def __init__(self, entries: LabelEntries, halving: Halving, pool: ThreadPool) -> None:
        self.entries, self.halving, self._pool = entries, halving, pool
        rows, blocks = halving.rows, halving.block_turns.size
        width, dense = halving.direction.size, entries.dense.shape[1]
        self._lengths = entries.end[rows] - entries.begin[rows] + dense + 8
        # The cumulative number of entries before each feature, estimated on a sample of the labels.
        some = rows[:: max(1, rows.size // 200)]
        ranges = zip(entries.begin[some], entries.end[some], strict=True)
        seen = np.concatenate([entries.indices[low:high] for low, high in ranges])
        counts = np.bincount(seen, minlength=width).astype(np.float64)
        counts[width - dense :] = some.size
        self._feature_work = np.concatenate(([0], np.cumsum(counts + 1e-3)))
        self._block_cuts = even_cuts(np.arange(blocks + 1), min(pool.threads, 1 + blocks // _BLOCKS_OF_A_TASK))

    def add(self, moved: int) -> None:
        """Update the sums for the members that changed sides. Each thread updates a range of features."""
        entries, halving = self.entries, self.halving
        if moved <= _LABELS_OF_A_TASK:
            _add_rows(entries, halving, 0, halving.direction.size)
        else:
            cuts = even_cuts(self._feature_work, self._pool.threads)
            self._pool.run(lambda low, high: _add_rows(entries, halving, low, high), cuts)

    def turn(self, spherical: bool) -> float:
        """Point the direction from the right centroid to the left one, and return how far it moved."""
        entries, halving, run = self.entries, self.halving, self._pool.run
        run(lambda first, last: _measure_blocks(halving, first, last), self._block_cuts)
        by_left, by_right = _centroid_weights(entries, halving, spherical)
        run(lambda first, last: _turn_blocks(halving, by_left, by_right, first, last), self._block_cuts)
        return _turn_private(entries, halving, by_left, by_right)

    def score(self, count: int) -> None:
        """Score the first ``count`` members of ``todo``."""
        work = np.concatenate(([0], np.cumsum(self._lengths[self.halving.todo[:count]])))
        tasks = min(2 * self._pool.threads, 1 + count // _LABELS_OF_A_TASK)
        self._pool.run(lambda low, high: _score(self.entries, self.halving, low, high), even_cuts(work, tasks))


def _log2_up(number: int) -> int:
    return (number - 1).bit_length()


def _tree_of_order(order: np.ndarray, depth: int, params: HierarchicalKMeansParams) -> LabelTree:
    """Return the tree whose ``2**depth`` leaves contain the labels in the given order."""
    bounds = half_bounds(order.size, depth)
    leaf = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
    upper = upper_splits(bounds.size - 1, params.nr_splits, params.min_codes)
    return LabelTree(splits=(*upper, bounds), labels=order[np.lexsort((order, leaf))])


def sample_rate(params: HierarchicalKMeansParams, level: int, depth: int) -> float:
    """Return the share of labels that determine a node's centroids. It rises from level to level after the warm-up."""
    if not params.do_sample:
        return 1.0
    warmup = int(params.warmup_ratio * depth)
    if level < warmup:
        return params.min_sample_rate
    step = (params.max_sample_rate - params.min_sample_rate) / (depth - warmup)
    return params.min_sample_rate + step * (level + 1 - warmup)
