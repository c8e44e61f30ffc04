"""The training windows of histories and their order, both computed on demand: they take no memory."""

from collections.abc import Sequence

import numpy as np

from xmc_tf.sequences.data.folder import UserHistories

PAD = -1  # in front of a short sequence
MASK = -2  # instead of an item to predict
HELD_OUT = 2  # the last items of a user: validation and test
_ROUNDS = 4


def trained_lengths(lengths: np.ndarray) -> np.ndarray:
    """Return the number of items of each user to train on: all but the last two, or all of fewer than three."""
    return np.where(lengths > HELD_OUT, lengths - HELD_OUT, lengths)


class HistoryWindows:
    """Windows over histories without their held-out items.

    The last window of a history ends with it, each earlier one ends ``step`` items before the next, and the first one
    begins with the history. Histories of a single item have no window.
    """

    def __init__(self, parts: Sequence[UserHistories], width: int, step: int) -> None:
        self._parts, self.width, self.step = parts, width, step
        # The number of the first window of each user, and then of each part.
        self._users = []
        for part in parts:
            lengths = trained_lengths(np.diff(part.splits))
            counts = np.where(lengths <= width, 1, 1 - (width - lengths) // step)
            self._users.append(np.concatenate([[0], np.cumsum(np.where(lengths < 2, 0, counts))]))
        self._bounds = np.concatenate([[0], np.cumsum([users[-1] for users in self._users])]).astype(np.int64)

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return windows as ``[windows, width]``, aligned at their ends, with ``PAD`` in front."""
        out = np.full((len(numbers), self.width), PAD, np.int32)
        owners = np.searchsorted(self._bounds[1:], numbers, side="right")
        for owner in np.unique(owners):
            mine = np.flatnonzero(owners == owner)
            part, firsts = self._parts[owner], self._users[owner]
            window = numbers[mine] - self._bounds[owner]
            user = np.searchsorted(firsts[1:], window, side="right")
            begin = np.asarray(part.splits)[user]
            lengths = trained_lengths(np.asarray(part.splits)[user + 1] - begin)
            end = begin + lengths - (window - firsts[user]) * self.step
            out[mine] = aligned(part.items, begin, end, self.width)
        return out


def aligned(items: np.ndarray, begin: np.ndarray, end: np.ndarray, width: int) -> np.ndarray:
    """Return the last ``width`` items of each range ``[begin, end)``, with ``PAD`` in front."""
    at = end[:, None] + np.arange(-width, 0)
    there = at >= begin[:, None]
    return np.where(there, items[np.where(there, at, 0)], PAD).astype(np.int32)


def shuffled(positions: np.ndarray, count: int, key: int) -> np.ndarray:
    """Return the images of positions under a pseudorandom permutation of ``range(count)``, a Feistel network."""
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    out = positions.astype(np.uint64)
    outside = np.ones(len(out), bool)
    while outside.any():  # the network permutes a range of up to four times the size; values beyond it are mapped again
        left, right = out[outside] >> half, out[outside] & low
        for number in range(_ROUNDS):
            left, right = right, left ^ (mixed(right + np.uint64(number << 40), key) & low)
        out[outside] = left << half | right
        outside = out >= count
    return out.astype(np.int64)


def mixed(values: np.ndarray, key: int) -> np.ndarray:
    """Return a 64-bit hash of each number, by the last steps of SplitMix64."""
    found = values.astype(np.uint64) + np.uint64((key * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & (2**64 - 1))
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))
