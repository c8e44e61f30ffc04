"""2-means on one large node by many threads and ranks: the same steps, and bit by bit the same result.

The steps are a *course*, a generator. If ranks share a node, each computes its part of a step. The course then yields
this rank's part and resumes when it is sent the parts of all ranks. A course of a node that is not shared never yields.
"""

from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
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
# Cost of communication: number of entries processed in the time in which one number is sent, and in the time until the
# first number arrives.
_ENTRIES_A_NUMBER, _ENTRIES_A_MESSAGE = 8, 200_000

_add_rows, _begin_halving = kernel(kmeans_kernels.add_rows), kernel(kmeans_kernels.begin_halving)
_centroid_weights, _change_sides = kernel(kmeans_kernels.centroid_weights), kernel(kmeans_kernels.change_sides)
_measure_blocks, _pick_doubtful = kernel(kmeans_kernels.measure_blocks), kernel(kmeans_kernels.pick_doubtful)
_score, _settle = kernel(kmeans_kernels.score), kernel(kmeans_kernels.settle)
_turn_blocks, _turn_private = kernel(kmeans_kernels.turn_blocks), kernel(kmeans_kernels.turn_private)
_first_direction, _first_sides = kernel(kmeans_nodes.first_direction), kernel(kmeans_nodes.first_sides)
_place_evenly = kernel(kmeans_nodes.place_evenly)

SplitSteps = Generator[np.ndarray, Sequence[np.ndarray], None]


class WideNode(NamedTuple):
    """A node to split.

    Args:
        start: the place of its first label.
        stop: the end of its labels (exclusive).
        empty: number of its labels without features; they come last.
        width: number of its sparse features.
        share: number of labels from which its centroids are computed.
        seed: its random state, one uint64.
    """

    start: int
    stop: int
    empty: int
    width: int
    share: int
    seed: np.ndarray


class TeamMember(NamedTuple):
    """A rank's place among the ranks that share a node.

    Args:
        number: the place.
        weights: the share of the work of each of these ranks.
    """

    number: int
    weights: np.ndarray


ALONE = TeamMember(0, np.ones(1))


def split_course(
    entries: LabelEntries,
    node: WideNode,
    spherical: bool,
    rounds: int,
    pool: ThreadPool,
    left: np.ndarray,
    seat: TeamMember = ALONE,
) -> SplitSteps:
    """Decide for each label of a node whether it goes left.

    Args:
        entries: the features.
        node: the node.
        spherical: whether centroids are scaled to length 1.
        rounds: maximum number of rounds of 2-means.
        pool: the threads.
        left: receives the result, at the places of the node's labels.
        seat: of this rank; all ranks that share the node compute all results.
    """
    filled, take = _place_evenly(node.start, node.stop, node.empty, left)
    if filled < 2:
        return
    width = node.width + entries.dense.shape[1]
    halving = _begin_halving(node.start, filled, node.share, width, node.seed.copy())
    steps = _Steps(entries, halving, pool, seat)
    yield from _halve(steps, half_of(take, node.share, filled), spherical, rounds)
    if node.share < filled:  # the direction found on the sample decides for the other labels
        everyone = _begin_halving(node.start, filled, filled, width, np.zeros(1, np.uint64))
        everyone.direction[:] = halving.direction
        everyone.own[halving.rows - node.start] = halving.own
        yield from _Steps(entries, everyone, pool, seat).score(filled)
        _settle(everyone, filled, take, 0.0)
        left[node.start : node.start + filled] = everyone.goes
    else:
        left[node.start : node.start + filled] = halving.left


def take_alone(course: SplitSteps) -> None:
    """Run a course of a node that is not shared."""
    for _ in course:
        raise AssertionError("a course with one seat waits for nobody")


def _halve(steps: "_Steps", half: int, spherical: bool, rounds: int) -> SplitSteps:
    """Run 2-means on the members; `kmeans_nodes.halve` takes the same steps in one thread."""
    halving = steps.halving
    members = halving.rows.size
    yield from steps.add(2)
    _first_direction(halving)
    yield from steps.score(members)
    _first_sides(halving, half)
    turned, moved = 0.0, members
    for _ in range(rounds):
        yield from steps.add(moved)
        turned += steps.turn(spherical)
        doubtful, wanted = _pick_doubtful(steps.entries, halving, turned, half)
        yield from steps.score(doubtful)
        _settle(halving, doubtful, wanted, turned)
        moved = _change_sides(halving)
        if moved == 0:
            break


class _Steps:
    """The steps that threads and ranks share.

    Args:
        entries: the features.
        halving: the state; every rank has all of it.
        pool: the threads.
        seat: this rank's place.
    """

    def __init__(self, entries: LabelEntries, halving: Halving, pool: ThreadPool, seat: TeamMember) -> None:
        self.entries, self.halving, self._pool, self._seat = entries, halving, pool, seat
        rows = halving.rows
        self._lengths = entries.end[rows] - entries.begin[rows] + entries.dense.shape[1] + 8
        self._mean_length = float(self._lengths.mean())
        self._feature_work = _feature_work(entries, halving)
        blocks = halving.block_turns.size
        self._block_cuts = even_cuts(np.arange(blocks + 1), min(pool.threads, 1 + blocks // _BLOCKS_OF_A_TASK))

    def add(self, moved: int) -> SplitSteps:
        """Add the members that moved to the sums, each rank for some features."""
        width, sums = self.halving.direction.size, (self.halving.left_sums, self.halving.right_sums)

        def add(low: int, high: int) -> None:
            _add_rows(self.entries, self.halving, low, high)

        if moved <= _LABELS_OF_A_TASK:
            add(0, width)
        elif not self._worth_sending(moved, 2 * width):
            self._pool.run(add, even_cuts(self._feature_work, self._pool.threads))
        else:
            bounds = _weighted_cuts(self._feature_work, self._seat.weights)
            low, high = self._run_own(add, bounds, self._feature_work, self._pool.threads)
            parts = yield np.concatenate([one[low:high] for one in sums])
            for (low, high), part in zip(pairwise(bounds), parts, strict=True):
                for one, numbers in zip(sums, part.reshape(2, -1), strict=True):
                    one[low:high] = numbers

    def turn(self, spherical: bool) -> float:
        """Point the direction to the current left centroid; return how far it moved."""
        entries, halving, run = self.entries, self.halving, self._pool.run
        run(lambda first, last: _measure_blocks(halving, first, last), self._block_cuts)
        by_left, by_right = _centroid_weights(entries, halving, spherical)
        run(lambda first, last: _turn_blocks(halving, by_left, by_right, first, last), self._block_cuts)
        return _turn_private(entries, halving, by_left, by_right)

    def score(self, count: int) -> SplitSteps:
        """Score the first ``count`` of the members to score, each rank some of them."""
        scores, todo = self.halving.scores, self.halving.todo

        def rate(low: int, high: int) -> None:
            _score(self.entries, self.halving, low, high)

        work = np.concatenate(([0], np.cumsum(self._lengths[todo[:count]])))
        tasks = min(2 * self._pool.threads, 1 + count // _LABELS_OF_A_TASK)
        if not self._worth_sending(count, count):
            self._pool.run(rate, even_cuts(work, tasks))
        else:
            bounds = _weighted_cuts(work, self._seat.weights)
            low, high = self._run_own(rate, bounds, work, tasks)
            parts = yield scores[todo[low:high]]
            for (low, high), part in zip(pairwise(bounds), parts, strict=True):
                scores[todo[low:high]] = part

    def _worth_sending(self, rows: int, numbers: int) -> bool:
        """Return whether processing ``rows`` rows takes longer than receiving ``numbers`` numbers from other ranks."""
        sent = _ENTRIES_A_MESSAGE + _ENTRIES_A_NUMBER * numbers
        return len(self._seat.weights) > 1 and rows * self._mean_length > sent

    def _run_own(
        self, task: Callable[[int, int], None], bounds: np.ndarray, before: np.ndarray, tasks: int
    ) -> tuple[int, int]:
        """Process this rank's range in its threads; return the range."""
        low, high = bounds[self._seat.number : self._seat.number + 2].tolist()
        self._pool.run(task, low + even_cuts(before[low : high + 1] - before[low], tasks))
        return low, high


def _weighted_cuts(before: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return bounds of one range per weight; ``before`` as for `even_cuts`."""
    inner = np.searchsorted(before, before[-1] * (np.cumsum(weights) / weights.sum())[:-1])
    return np.concatenate(([0], inner, [before.size - 1]))


def _feature_work(entries: LabelEntries, halving: Halving) -> np.ndarray:
    """Return the number of entries before each feature and after the last, estimated on a sample of the labels."""
    width, dense = halving.direction.size, entries.dense.shape[1]
    some = halving.rows[:: max(1, halving.rows.size // 200)]
    begin, end = entries.begin[some], entries.end[some]
    seen = np.concatenate([entries.indices[low:high] for low, high in zip(begin, end, strict=True)])
    counts = np.bincount(seen, minlength=width).astype(np.float64)
    counts[width - dense :] = some.size
    return np.concatenate(([0], np.cumsum(counts + 1e-3)))
