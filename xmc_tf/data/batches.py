"""Batches of documents of similar length. Their order depends only on the seed and the epoch."""

import numpy as np

# Batches per window: more of them mean less padding and less randomness.
_WINDOW = 50


def epoch_batches(
    lengths: np.ndarray, batch: int, *, seed: int, epoch: int, token_budget: int | None = None
) -> list[np.ndarray]:
    """Return the global batches of an epoch as int64 document numbers; each document is in exactly one batch."""
    lengths = np.asarray(lengths)
    chance = np.random.default_rng([seed, epoch])
    documents = chance.permutation(len(lengths))
    # Sorting by length saves padding; sorting only within windows keeps the batches of each epoch different.
    nr_batches = -(-len(documents) // batch)
    nr_windows = max(1, round(nr_batches / _WINDOW))
    cuts = nr_batches * np.arange(1, nr_windows) // nr_windows * batch
    batches: list[np.ndarray] = []
    for window in filter(len, np.split(documents, cuts)):
        window = window[np.argsort(lengths[window], kind="stable")]
        if token_budget is None:
            sizes = np.full(-(-len(window) // batch), batch)
            # A random batch is the smaller one, or it would always hold the longest documents.
            sizes[chance.integers(len(sizes))] -= len(sizes) * batch - len(window)
            ends = np.cumsum(sizes)
        else:
            ends = _budget_ends(np.maximum(lengths[window], 1), batch, token_budget)
        batches.extend(np.split(window, ends[:-1]))
    return [batches[i] for i in chance.permutation(len(batches))]


def share_of_batch(documents: np.ndarray, lengths: np.ndarray, rank: int, size: int) -> np.ndarray:
    """Return this rank's share of a global batch, in batch order. Ranks get similar numbers of documents and tokens."""
    longest_first = np.argsort(-np.asarray(lengths)[documents].astype(np.int64), kind="stable")
    row, column = np.divmod(np.arange(len(documents)), size)
    # Rounds have alternating directions: the first rank of one round is the last of the next.
    dealt_to = np.where(row % 2, size - 1 - column, column)
    return documents[np.sort(longest_first[dealt_to == rank])]


def _budget_ends(lengths: np.ndarray, batch: int, budget: int) -> np.ndarray:
    """Return the ends of the largest batches that the token budget allows; ``lengths`` are ascending."""
    ends, start, counts = [], 0, np.arange(1, batch + 1)
    while start < len(lengths):
        here = lengths[start : start + batch].astype(np.int64)
        fitting = int(np.searchsorted(here * counts[: len(here)], budget, side="right"))
        start += max(1, fitting)
        ends.append(start)
    return np.array(ends)
