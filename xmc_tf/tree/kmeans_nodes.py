"""2-means on many nodes, with one thread per node, and the selection of the features that the nodes keep."""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.tree.kmeans_kernels import (
    Halving,
    LabelEntries,
    add_rows,
    begin_halving,
    centroid_weights,
    change_sides,
    measure_blocks,
    pick_doubtful,
    score,
    settle,
    turn_blocks,
    turn_private,
)


@kernel
def split_nodes(
    first: int, last: int, starts: np.ndarray, empties: np.ndarray, widths: np.ndarray, shares: np.ndarray,
    seeds: np.ndarray, entries: LabelEntries, spherical: bool, rounds: int, result: np.ndarray,
) -> None:  # fmt: skip
    """Split the nodes ``[first, last)``; ``shares`` is the number of labels that determine each node's centroids, and
    ``result`` receives whether each label goes left.
    """
    state = np.empty(1, np.uint64)
    for node in range(first, last):
        filled, take = place_evenly(starts[node], starts[node + 1], empties[node], result)
        if filled < 2:
            continue
        state[0] = seeds[node]
        width = widths[node] + entries.dense.shape[1]
        halving = begin_halving(starts[node], filled, shares[node], width, state)
        halve(entries, halving, half_of(take, shares[node], filled), spherical, rounds)
        settle_all(entries, halving, starts[node], filled, take, result)


@inner
def half_of(take: int, members: int, filled: int) -> int:
    """Return how many of the ``members`` go left if ``take`` of all ``filled`` labels go left."""
    return max(1, take * members // filled)


@inner
def place_evenly(start: int, stop: int, empty: int, result: np.ndarray) -> tuple[int, int]:
    """Split a node evenly, without 2-means; return the number of labels with features and how many of them go left."""
    filled = stop - start - empty
    take = (stop - start) // 2 - empty // 2
    for i in range(filled):
        result[start + i] = i < take
    for i in range(empty):
        result[start + filled + i] = i < empty // 2
    return filled, take


@inner
def halve(entries: LabelEntries, halving: Halving, half: int, spherical: bool, rounds: int) -> None:
    """Run 2-means on one node in one thread. `kmeans` runs the same steps in several threads."""
    width, blocks = halving.direction.size, halving.block_turns.size
    add_rows(entries, halving, 0, width)
    first_direction(halving)
    score(entries, halving, 0, halving.rows.size)
    first_sides(halving, half)
    turned = 0.0
    for _ in range(rounds):
        add_rows(entries, halving, 0, width)
        measure_blocks(halving, 0, blocks)
        by_left, by_right = centroid_weights(entries, halving, spherical)
        turn_blocks(halving, by_left, by_right, 0, blocks)
        turned += turn_private(entries, halving, by_left, by_right)
        doubtful, wanted = pick_doubtful(entries, halving, turned, half)
        score(entries, halving, 0, doubtful)
        settle(halving, doubtful, wanted, turned)
        if change_sides(halving) == 0:
            break


@inner
def first_direction(halving: Halving) -> None:
    """Point the direction from one of the two chosen members to the other, and clear the sums."""
    for f in range(halving.direction.size):
        halving.direction[f] = halving.left_sums[f] - halving.right_sums[f]
        halving.left_sums[f] = 0
        halving.right_sums[f] = 0
    for i in range(halving.rows.size):
        halving.own[i] = halving.to_left[i] - halving.to_right[i]


@inner
def first_sides(halving: Halving, half: int) -> None:
    """Assign every member to a side, and set the factors that add it to the sums of that side."""
    settle(halving, halving.rows.size, half, -np.inf)
    for i in range(halving.rows.size):
        halving.left[i] = halving.goes[i]
        halving.to_left[i] = halving.goes[i]
        halving.to_right[i] = not halving.goes[i]


@inner
def settle_all(entries: LabelEntries, halving: Halving, start: int, filled: int, take: int, result: np.ndarray) -> None:
    """Store the sides. If the members are a sample, split all labels by the direction found on the sample."""
    members = halving.rows.size
    if members == filled:
        for i in range(filled):  # numba takes seconds to compile the assignment of a slice
            result[start + i] = halving.left[i]
        return
    state = np.zeros(1, np.uint64)
    everyone = begin_halving(start, filled, filled, halving.direction.size, state)
    for f in range(halving.direction.size):
        everyone.direction[f] = halving.direction[f]
    for i in range(members):
        everyone.own[halving.rows[i] - start] = halving.own[i]
    score(entries, everyone, 0, filled)
    settle(everyone, filled, take, 0.0)
    for i in range(filled):
        result[start + i] = everyone.goes[i]


@kernel
def keep_shared(
    first: int, last: int, starts: np.ndarray, widths: np.ndarray, offsets: np.ndarray, entries: LabelEntries,
    new_indices: np.ndarray, new_values: np.ndarray,
) -> None:  # fmt: skip
    """Make each node's features contiguous and renumber those that several labels share, so that the sums fit in the
    cache. The squared value of a feature that only one label has is added to the label's ``private`` weight.
    """
    indices, values = entries.indices, entries.values
    widest = 0
    for node in range(first, last):
        widest = max(widest, widths[node])
    number = np.empty(widest, np.int32)
    for node in range(first, last):
        write = offsets[node]
        for f in range(widths[node]):
            number[f] = 0
        for row in range(starts[node], starts[node + 1]):
            for k in range(entries.begin[row], entries.end[row]):
                number[indices[k]] += 1
        shared = 0
        for f in range(widths[node]):
            if number[f] > 1:
                number[f] = shared
                shared += 1
            else:
                number[f] = -1
        widths[node] = shared
        for row in range(starts[node], starts[node + 1]):
            read, stop, own = entries.begin[row], entries.end[row], entries.private[row]
            entries.begin[row] = write
            for k in range(read, stop):
                new = number[indices[k]]
                if new >= 0:
                    new_indices[write] = new
                    new_values[write] = values[k]
                    write += 1
                else:
                    own += values[k] * values[k]
            entries.private[row] = own
            entries.end[row] = write


@kernel(fastmath={"reassoc", "contract", "nsz"})
def row_squares(
    low: int, high: int, indptr: np.ndarray, values: np.ndarray, dense: np.ndarray, squares: np.ndarray
) -> None:
    """Compute the squared norm of each label's features. It is not finite if one of the features is not."""
    for row in range(low, high):
        total = np.float64(0.0)
        for k in range(indptr[row], indptr[row + 1]):
            total += np.float64(values[k]) * np.float64(values[k])
        for j in range(dense.shape[1]):
            total += np.float64(dense[row, j]) * np.float64(dense[row, j])
        squares[row] = total
