"""2-means on one large node by many threads: the same steps, and bit by bit the same result, as by one."""

import numpy as np

from xmc_tf.tree.kmeans_kernels import (
    Entries,
    Halving,
    add_rows,
    centroid_weights,
    change_sides,
    measure_blocks,
    pick_doubtful,
    score,
    settle,
    turn_blocks,
    turn_private,
)
from xmc_tf.tree.kmeans_nodes import first_direction, first_sides
from xmc_tf.tree.threads import Workers, even_cuts

# Less than that is done before another thread has woken up. It decides who does the work, never what comes of it.
_LABELS_OF_A_TASK = 200
_BLOCKS_OF_A_TASK = 64


def halve_together(
    entries: Entries, halving: Halving, half: int, spherical: bool, rounds: int, workers: Workers
) -> None:
    """2-means on one node, each thread scoring some of the labels and summing some of the features.

    Args:
        entries: the features.
        halving: the state, as `begin_halving` made it; holds the result.
        half: how many members go left.
        spherical: whether centroids are scaled to length 1.
        rounds: the most rounds.
        workers: the threads.
    """
    members, width, threads = halving.rows.size, halving.direction.size, workers.threads
    lengths = entries.end[halving.rows] - entries.begin[halving.rows] + entries.dense.shape[1] + 8
    feature_cuts = _feature_cuts(entries, halving, threads)
    whole, blocks = np.array([0, width]), halving.block_turns.size
    block_cuts = even_cuts(np.arange(blocks + 1), min(threads, 1 + blocks // _BLOCKS_OF_A_TASK))

    def add(moved: int) -> None:
        cuts = feature_cuts if moved > _LABELS_OF_A_TASK else whole
        workers.run(lambda low, high: add_rows(entries, halving, low, high), cuts)

    def turn() -> float:
        workers.run(lambda first, last: measure_blocks(halving, first, last), block_cuts)
        by_left, by_right = centroid_weights(entries, halving, spherical)
        workers.run(lambda first, last: turn_blocks(halving, by_left, by_right, first, last), block_cuts)
        return turn_private(entries, halving, by_left, by_right)

    def score_first(count: int) -> None:
        before = np.concatenate(([0], np.cumsum(lengths[halving.todo[:count]])))
        parts = min(2 * threads, 1 + count // _LABELS_OF_A_TASK)
        workers.run(lambda low, high: score(entries, halving, low, high), even_cuts(before, parts))

    add(members)
    first_direction(halving)
    score_first(members)
    first_sides(halving, half)
    turned, moved = 0.0, members
    for _ in range(rounds):
        add(moved)
        turned += turn()
        doubtful, wanted = pick_doubtful(entries, halving, turned, half)
        score_first(doubtful)
        settle(halving, doubtful, wanted, turned)
        moved = change_sides(halving)
        if moved == 0:
            break


def _feature_cuts(entries: Entries, halving: Halving, parts: int) -> np.ndarray:
    """Ranges of features with about the same number of entries, as estimated on some of the labels."""
    width, dense = halving.direction.size, entries.dense.shape[1]
    some = halving.rows[:: max(1, halving.rows.size // 200)]
    begin, end = entries.begin[some], entries.end[some]
    seen = np.concatenate([entries.indices[low:high] for low, high in zip(begin, end, strict=True)])
    counts = np.bincount(seen, minlength=width).astype(np.float64)
    counts[width - dense :] = some.size
    return even_cuts(np.concatenate(([0], np.cumsum(counts + 1e-3))), parts)
