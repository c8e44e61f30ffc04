"""Compiled steps of 2-means on one node. The expensive steps work on a range, so that threads can divide them.

Two shortcuts save time without changing the result. Only labels that changed sides are moved between the sums. And a
label is scored again only if its score may have crossed the border: a score changes by at most the label's norm times
the distance that the direction moved (`pick_doubtful`). Sums are computed in the order of the labels or by blocks of a
fixed size, so the tree does not depend on the number of threads. No sum may be left to `fastmath`: the compiler would
choose another order in each kernel that a function is compiled into.
"""

from typing import NamedTuple

import numpy as np

from xmc_tf.common.compiled import inner
from xmc_tf.common.lanes import WIDTH, at, load_at, splat, store_at, total
from xmc_tf.common.ordering import first_at_least, kth_largest

BLOCK = 4096


class LabelEntries(NamedTuple):
    """The features of the labels of a level. A label's place is its position in the level."""

    begin: np.ndarray  # where the sparse features of each place begin in ``indices`` and ``values``
    end: np.ndarray
    indices: np.ndarray  # ascending within a label, numbered within a node from 0
    values: np.ndarray
    dense: np.ndarray  # one row per label (not per place); no columns if there are no dense features
    order: np.ndarray  # the label at each place
    private: np.ndarray  # squared weight of the dropped features, which no other label of the node has
    norms: np.ndarray  # norm of all features of each place


class Halving(NamedTuple):
    """The state of 2-means on a node. Members are the labels that determine its centroids. Dense features come last."""

    rows: np.ndarray  # place of each member
    left: np.ndarray  # whether it is on the left side
    goes: np.ndarray  # whether it goes to the left side in this round
    to_left: np.ndarray  # factor with which it is added to the left sums: 1, 0 or -1
    to_right: np.ndarray
    own: np.ndarray  # direction along its private features
    scores: np.ndarray  # its position along the direction to the left centroid, when it was last scored
    known: np.ndarray  # how far the direction had moved by then
    todo: np.ndarray  # members to score
    left_sums: np.ndarray
    right_sums: np.ndarray
    direction: np.ndarray  # from the right centroid to the left one
    block_norms: np.ndarray  # squared norms of the two sums, block by block
    block_turns: np.ndarray  # squared distance that the direction moved, block by block


@inner
def next_random(state: np.ndarray) -> np.uint64:
    """Return the next number of SplitMix64; ``state`` is an array of one uint64."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inner
def begin_halving(first: int, count: int, members: int, width: int, state: np.ndarray) -> Halving:
    """Choose the members among ``count`` places from ``first`` on, and two of them to define the first direction."""
    rows = np.empty(members, np.int64)
    taken = 0
    for i in range(count):
        if taken < members and next_random(state) % np.uint64(count - i) < np.uint64(members - taken):
            rows[taken] = first + i
            taken += 1
    to_left, to_right = np.zeros(members, np.int8), np.zeros(members, np.int8)
    a = np.int64(next_random(state) % np.uint64(members))
    b = np.int64(next_random(state) % np.uint64(members - 1))
    to_left[a] = 1
    to_right[b + np.int64(b >= a)] = 1
    blocks = (width + BLOCK - 1) // BLOCK
    return Halving(
        rows, np.zeros(members, np.bool_), np.zeros(members, np.bool_), to_left, to_right,
        np.zeros(members, np.float32), np.zeros(members, np.float32), np.zeros(members, np.float64), np.arange(members),
        np.zeros(width, np.float32), np.zeros(width, np.float32), np.zeros(width, np.float32),
        np.zeros((2, blocks), np.float32), np.zeros(blocks, np.float32),
    )  # fmt: skip


@inner
def add_rows(entries: LabelEntries, halving: Halving, low: int, high: int) -> None:
    """Add the members to the sums with the factors ``to_left`` and ``to_right``, for the features ``[low, high)``."""
    width = halving.direction.size
    nr_sparse = width - entries.dense.shape[1]
    whole = low == 0 and high == width
    for i in range(halving.rows.size):
        for side in range(2):
            sign = halving.to_left[i] if side == 0 else halving.to_right[i]
            if sign == 0:
                continue
            sums = halving.left_sums if side == 0 else halving.right_sums
            weight = np.float32(sign)
            row = halving.rows[i]
            first, last = entries.begin[row], entries.end[row]
            if not whole:
                first = first_at_least(entries.indices, low, first, last)
                last = first_at_least(entries.indices, high, first, last)
            for k in range(first, last):
                sums[entries.indices[k]] += weight * entries.values[k]
            label = entries.order[row]
            for j in range(max(low, nr_sparse), high):
                sums[j] += weight * entries.dense[label, j - nr_sparse]


@inner
def _dot(a: np.ndarray, b: np.ndarray) -> np.float32:
    sums, rest = splat(0.0), np.float32(0.0)
    whole = a.size - a.size % WIDTH
    for f in range(0, whole, WIDTH):
        sums = sums + load_at(a, f) * load_at(b, f)
    for f in range(whole, a.size):
        rest += at(a, f) * at(b, f)
    return total(sums) + rest


@inner
def measure_blocks(halving: Halving, first: int, last: int) -> None:
    """Compute the squared norms of the two sums, block by block."""
    for block in range(first, last):
        for side in range(2):
            sums = halving.left_sums if side == 0 else halving.right_sums
            sums = sums[block * BLOCK : min((block + 1) * BLOCK, sums.size)]
            halving.block_norms[side, block] = _dot(sums, sums)


@inner
def centroid_weights(entries: LabelEntries, halving: Halving, spherical: bool) -> tuple[float, float]:
    """Return the factors that turn the two sums into centroids."""
    left = right = 0.0
    for block in range(halving.block_turns.size):
        left += halving.block_norms[0, block]
        right += halving.block_norms[1, block]
    count = 0
    for i in range(halving.rows.size):
        if halving.left[i]:
            count += 1
            left += entries.private[halving.rows[i]]
        else:
            right += entries.private[halving.rows[i]]
    if not spherical:
        return 1.0 / max(count, 1), 1.0 / max(halving.rows.size - count, 1)
    return 1.0 / np.sqrt(left) if left > 0.0 else 0.0, 1.0 / np.sqrt(right) if right > 0.0 else 0.0


@inner
def turn_blocks(halving: Halving, by_left: float, by_right: float, first: int, last: int) -> None:
    """Point the direction from the right centroid to the left one; record how far it moved, block by block."""
    left_sums, right_sums, direction = halving.left_sums, halving.right_sums, halving.direction
    of_left, of_right = np.float32(by_left), np.float32(by_right)
    all_of_left, all_of_right = splat(of_left), splat(of_right)
    for block in range(first, last):
        low, high = block * BLOCK, min((block + 1) * BLOCK, direction.size)
        whole = high - (high - low) % WIDTH
        distances, distance = splat(0.0), np.float32(0.0)
        for f in range(low, whole, WIDTH):
            turned = all_of_left * load_at(left_sums, f) - all_of_right * load_at(right_sums, f)
            moved = turned - load_at(direction, f)
            distances = distances + moved * moved
            store_at(direction, f, turned)
        for f in range(whole, high):
            new = of_left * left_sums[f] - of_right * right_sums[f]
            distance += (new - direction[f]) * (new - direction[f])
            direction[f] = new
        halving.block_turns[block] = total(distances) + distance


@inner
def turn_private(entries: LabelEntries, halving: Halving, by_left: float, by_right: float) -> float:
    """Update the direction for the private features; return how far the whole direction moved."""
    distance = 0.0
    for block in range(halving.block_turns.size):
        distance += halving.block_turns[block]
    for i in range(halving.rows.size):
        new = np.float32(by_left if halving.left[i] else -by_right)
        distance += entries.private[halving.rows[i]] * (new - halving.own[i]) ** 2
        halving.own[i] = new
    return np.sqrt(distance)


@inner
def _sparse_dot(first: int, last: int, indices: np.ndarray, values: np.ndarray, vector: np.ndarray) -> np.float32:
    """Return a dot product. Four partial sums keep LLVM from using vector gathers, which are half as fast."""
    a = b = c = d = np.float32(0.0)
    k = first
    while k + 4 <= last:
        a += values[k] * vector[indices[k]]
        b += values[k + 1] * vector[indices[k + 1]]
        c += values[k + 2] * vector[indices[k + 2]]
        d += values[k + 3] * vector[indices[k + 3]]
        k += 4
    while k < last:
        a += values[k] * vector[indices[k]]
        k += 1
    return (a + b) + (c + d)


@inner
def score(entries: LabelEntries, halving: Halving, low: int, high: int) -> None:
    """Score the members ``todo[low:high]`` by their positions along the direction to the left centroid."""
    dense = entries.dense.shape[1]
    nr_sparse = halving.direction.size - dense
    for n in range(low, high):
        i = halving.todo[n]
        row = halving.rows[i]
        result = _sparse_dot(entries.begin[row], entries.end[row], entries.indices, entries.values, halving.direction)
        if dense > 0:
            result += _dot(entries.dense[entries.order[row]], halving.direction[nr_sparse:])
        halving.scores[i] = result + entries.private[row] * halving.own[i]


@inner
def pick_doubtful(entries: LabelEntries, halving: Halving, turned: float, take: int) -> tuple[int, int]:
    """Write the members whose side is uncertain to ``todo``; return their number and how many of them go left."""
    count = halving.rows.size
    scores, goes, todo = halving.scores, halving.goes, halving.todo
    slack, bounds = np.empty(count, np.float32), np.empty(count, np.float32)
    for i in range(count):
        # A margin on top of the distance, so that rounding does not make a member look certain.
        distance = 1.0001 * (turned - halving.known[i]) + 1e-6
        slack[i] = entries.norms[halving.rows[i]] * distance
        bounds[i] = scores[i] - slack[i]
    lowest = kth_largest(bounds, take)
    for i in range(count):
        bounds[i] = scores[i] + slack[i]
    highest = kth_largest(bounds, take)
    doubtful = 0
    for i in range(count):
        goes[i] = scores[i] - slack[i] > highest
        if goes[i]:
            take -= 1
        elif scores[i] + slack[i] >= lowest:
            todo[doubtful] = i
            doubtful += 1
    return doubtful, take


@inner
def settle(halving: Halving, doubtful: int, take: int, turned: float) -> None:
    """Send the ``take`` doubtful members with the best scores to the left. Ties go to the first members."""
    if doubtful == 0:
        return
    scores, goes, todo = halving.scores, halving.goes, halving.todo
    numbers = np.empty(doubtful, np.float32)
    for n in range(doubtful):
        numbers[n] = scores[todo[n]]
        halving.known[todo[n]] = turned
    bound = kth_largest(numbers, take) if take > 0 else np.float32(np.inf)
    for n in range(doubtful):
        if scores[todo[n]] > bound:
            take -= 1
    for n in range(doubtful):
        i = todo[n]
        goes[i] = scores[i] > bound
        if scores[i] == bound and take > 0:
            goes[i] = True
            take -= 1


@inner
def change_sides(halving: Halving) -> int:
    """Move the members to their new sides and set the factors for the sums; return how many members changed sides."""
    changed = 0
    for i in range(halving.rows.size):
        sign = np.int8(halving.goes[i]) - np.int8(halving.left[i])
        halving.to_left[i] = sign
        halving.to_right[i] = -sign
        halving.left[i] = halving.goes[i]
        changed += sign != 0
    return changed
