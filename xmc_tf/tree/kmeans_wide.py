"""2-means on one large node by many threads, with the same steps and bits as `kmeans_nodes`."""

from typing import NamedTuple

import numpy as np

from xmc_tf.common.compiled import kernel
from xmc_tf.tree import kmeans_kernels, kmeans_nodes
from xmc_tf.tree.kmeans_kernels import Halving, LabelEntries
from xmc_tf.tree.kmeans_nodes import half_of
from xmc_tf.tree.threads import ThreadPool, even_cuts

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


class WideNode(NamedTuple):
    start: int  # place of its first label
    stop: int  # exclusive
    empty: int  # number of labels without features, which come last
    width: int  # number of sparse features
    share: int  # number of labels that determine the centroids
    seed: np.ndarray  # random state, one uint64


def split_wide(
    entries: LabelEntries, node: WideNode, spherical: bool, rounds: int, pool: ThreadPool, left: np.ndarray
) -> None:
    """Decide for each label of a node whether it goes left."""
    filled, take = _place_evenly(node.start, node.stop, node.empty, left)
    if filled < 2:
        return
    width = node.width + entries.dense.shape[1]
    halving = _begin_halving(node.start, filled, node.share, width, node.seed.copy())
    steps = _Steps(entries, halving, pool)
    _halve(steps, half_of(take, node.share, filled), spherical, rounds)
    if node.share < filled:  # the direction found on the sample decides for the other labels
        everyone = _begin_halving(node.start, filled, filled, width, np.zeros(1, np.uint64))
        everyone.direction[:] = halving.direction
        everyone.own[halving.rows - node.start] = halving.own
        _Steps(entries, everyone, pool).score(filled)
        _settle(everyone, filled, take, 0.0)
        left[node.start : node.start + filled] = everyone.goes
    else:
        left[node.start : node.start + filled] = halving.left


def _halve(steps: "_Steps", half: int, spherical: bool, rounds: int) -> None:
    """Run 2-means on the members; `kmeans_nodes.halve` takes the same steps in one thread."""
    halving = steps.halving
    members = halving.rows.size
    steps.add(2)
    _first_direction(halving)
    steps.score(members)
    _first_sides(halving, half)
    turned, moved = 0.0, members
    for _ in range(rounds):
        steps.add(moved)
        turned += steps.turn(spherical)
        doubtful, wanted = _pick_doubtful(steps.entries, halving, turned, half)
        steps.score(doubtful)
        _settle(halving, doubtful, wanted, turned)
        moved = _change_sides(halving)
        if moved == 0:
            break


class _Steps:
    """The steps that threads share."""

    def __init__(self, entries: LabelEntries, halving: Halving, pool: ThreadPool) -> None:
        self.entries, self.halving, self._pool = entries, halving, pool
        rows = halving.rows
        self._lengths = entries.end[rows] - entries.begin[rows] + entries.dense.shape[1] + 8
        self._feature_work = _feature_work(entries, halving)
        blocks = halving.block_turns.size
        self._block_cuts = even_cuts(np.arange(blocks + 1), min(pool.threads, 1 + blocks // _BLOCKS_OF_A_TASK))

    def add(self, moved: int) -> None:
        """Add the members that moved to the sums, each thread for some features."""

        def add(low: int, high: int) -> None:
            _add_rows(self.entries, self.halving, low, high)

        if moved <= _LABELS_OF_A_TASK:
            add(0, self.halving.direction.size)
        else:
            self._pool.run(add, even_cuts(self._feature_work, self._pool.threads))

    def turn(self, spherical: bool) -> float:
        """Point the direction to the current left centroid; return how far it moved."""
        entries, halving, run = self.entries, self.halving, self._pool.run
        run(lambda first, last: _measure_blocks(halving, first, last), self._block_cuts)
        by_left, by_right = _centroid_weights(entries, halving, spherical)
        run(lambda first, last: _turn_blocks(halving, by_left, by_right, first, last), self._block_cuts)
        return _turn_private(entries, halving, by_left, by_right)

    def score(self, count: int) -> None:
        """Score the first ``count`` members of ``todo``."""

        def rate(low: int, high: int) -> None:
            _score(self.entries, self.halving, low, high)

        work = np.concatenate(([0], np.cumsum(self._lengths[self.halving.todo[:count]])))
        tasks = min(2 * self._pool.threads, 1 + count // _LABELS_OF_A_TASK)
        self._pool.run(rate, even_cuts(work, tasks))


def _feature_work(entries: LabelEntries, halving: Halving) -> np.ndarray:
    """Return the cumulative number of entries before each feature, estimated on a sample of the labels."""
    width, dense = halving.direction.size, entries.dense.shape[1]
    some = halving.rows[:: max(1, halving.rows.size // 200)]
    begin, end = entries.begin[some], entries.end[some]
    seen = np.concatenate([entries.indices[low:high] for low, high in zip(begin, end, strict=True)])
    counts = np.bincount(seen, minlength=width).astype(np.float64)
    counts[width - dense :] = some.size
    return np.concatenate(([0], np.cumsum(counts + 1e-3)))
