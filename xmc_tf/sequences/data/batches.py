"""Batches for training and evaluation. Each rank makes its part of the global batch.

The global batches do not depend on the number of ranks. The training windows and their order are computed on demand, so
they take no memory.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.sequences.data.folder import UserHistories

PAD = -1  # in front of a short sequence
MASK = -2  # instead of an item to predict
HELD_OUT = 2  # the last items of a user: validation and test
_ROUNDS = 4
Split = Literal["validation", "test"]


def trained_lengths(lengths: np.ndarray) -> np.ndarray:
    """Return the number of training items of each user: all but the last two, or all if there are fewer than three."""
    return np.where(lengths > HELD_OUT, lengths - HELD_OUT, lengths)


class HistoryWindows:
    """Training windows over user histories, without the held-out items at the end.

    The last window of a user ends at the last training item. Each earlier window ends ``step`` items before the next
    one, and the first window contains the start of the history. Users with a single training item have no window.
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
        """Return the windows with these numbers as ``[windows, width]``. Short windows are padded in front."""
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
    """Return the last ``width`` items of each range ``[begin, end)``. Short ranges are padded in front with ``PAD``."""
    at = end[:, None] + np.arange(-width, 0)
    there = at >= begin[:, None]
    return np.where(there, items[np.where(there, at, 0)], PAD).astype(np.int32)


def shuffled(positions: np.ndarray, count: int, key: int) -> np.ndarray:
    """Apply a pseudorandom permutation of ``range(count)``, computed by a Feistel network, to positions."""
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
    """Return a 64-bit hash of each number, computed by the final steps of SplitMix64."""
    found = values.astype(np.uint64) + np.uint64((key * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & (2**64 - 1))
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


class SequenceBatch(NamedTuple):
    """This rank's sequences of one step: ``[sequences, max_len]`` with item numbers, ``PAD`` or ``MASK``."""

    inputs: np.ndarray
    targets: np.ndarray  # the items to predict, PAD elsewhere
    epoch: int
    step: int


@dataclass(frozen=True)
class BatchShape:
    max_len: int
    causal: bool  # predict each item from those before it; otherwise masked items from all others
    mask_prob: float = 0.0  # the last item of a window is always masked, as in a prediction


class TrainBatches:
    """The training batches, which can be made in any order. Masks depend on seed, epoch and window, not on ranks."""

    def __init__(
        self, parts: Sequence[UserHistories], shape: BatchShape, step: int, batch: int, seed: int, rank: int = 0,
        size: int = 1,
    ) -> None:  # fmt: skip
        self._windows = HistoryWindows(parts, shape.max_len + shape.causal, step)
        self._shape, self._batch, self._seed = shape, batch, seed
        self._rank, self._size = rank, size
        if not len(self._windows):
            raise InputError(
                "there are no sequences to train on",
                expected="users with at least two training items (of three or more items, the last two are held out)",
                fix="prepare more interactions, or change train_data",
            )

    @property
    def sequences(self) -> int:
        """The number of sequences in an epoch."""
        return len(self._windows)

    @property
    def steps(self) -> int:
        """The number of steps in an epoch."""
        return -(-len(self._windows) // self._batch)

    def make(self, epoch: int, step: int) -> SequenceBatch:
        """Return this rank's part of the batch of a step."""
        low = step * self._batch
        count = min(self._batch, len(self._windows) - low)
        first, last = (count * rank // self._size for rank in (self._rank, self._rank + 1))
        positions = np.arange(low + first, low + last)
        numbers = shuffled(positions, len(self._windows), _key(self._seed, epoch, 0))
        items = self._windows.take(numbers)
        if self._shape.causal:
            inputs, targets = items[:, :-1], items[:, 1:]
            targets = np.where(inputs == PAD, PAD, targets)
            return SequenceBatch(inputs, targets, epoch, step)
        places = np.arange(self._shape.max_len, dtype=np.uint64)
        cells = numbers[:, None].astype(np.uint64) * np.uint64(self._shape.max_len) + places
        # Compared as whole numbers, so that a probability of 0 masks nothing.
        drawn = mixed(cells, _key(self._seed, epoch, 1)) >> np.uint64(11)
        masked = drawn < np.uint64(int(self._shape.mask_prob * 2**53))
        masked[:, -1] = True
        masked &= items != PAD
        return SequenceBatch(np.where(masked, MASK, items), np.where(masked, items, PAD), epoch, step)

    @contextmanager
    def stream(self, epoch: int, step: int, threads: int = 1) -> Iterator[Iterator[SequenceBatch]]:
        """Yield an endless iterator over the batches, starting at the given step. Threads prepare them ahead."""
        with ThreadPoolExecutor(threads, thread_name_prefix="batches") as pool:
            ahead: deque[Future[SequenceBatch]] = deque()

            def run(epoch: int, step: int) -> Iterator[SequenceBatch]:
                while True:
                    while len(ahead) < 2 * threads:
                        if step >= self.steps:
                            epoch, step = epoch + 1, 0
                        ahead.append(pool.submit(self.make, epoch, step))
                        step += 1
                    yield ahead.popleft().result()

            try:
                yield run(epoch, step)
            finally:
                for future in ahead:
                    future.cancel()


class HeldOut:
    """The last (test) or second to last (validation) item of each user with at least three items."""

    def __init__(
        self, parts: Sequence[UserHistories], shape: BatchShape, split: Split, batch: int, rank: int = 0, size: int = 1
    ) -> None:
        self._parts, self._shape, self._batch, self._rank, self._size = parts, shape, batch, rank, size
        self._back = 1 if split == "test" else HELD_OUT
        self._users = [np.flatnonzero(np.diff(part.splits) > HELD_OUT) for part in parts]
        self.bounds = np.concatenate([[0], np.cumsum([len(users) for users in self._users])]).astype(np.int64)

    @property
    def users(self) -> int:
        return int(self.bounds[-1])

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield this rank's inputs ``[users, max_len]`` and held-out items ``[users]`` of each batch."""
        for low in range(0, self.users, self._batch):
            count = min(self._batch, self.users - low)
            first, last = (low + count * rank // self._size for rank in (self._rank, self._rank + 1))
            inputs, targets = [], []
            for number, part in enumerate(self._parts):
                begin, end = (
                    min(max(at - int(self.bounds[number]), 0), len(self._users[number])) for at in (first, last)
                )
                users = self._users[number][begin:end]
                splits = np.asarray(part.splits)
                target = splits[users + 1] - self._back
                inputs.append(histories(part.items, splits[users], target, self._shape))
                targets.append(part.items[target])
            yield np.concatenate(inputs), np.concatenate(targets)


def histories(items: np.ndarray, begin: np.ndarray, end: np.ndarray, shape: BatchShape) -> np.ndarray:
    """Return model inputs. Their last position predicts the item that follows each history ``items[begin:end]``."""
    if shape.causal:
        return aligned(items, begin, end, shape.max_len)
    last = aligned(items, begin, end, shape.max_len - 1)
    return np.concatenate([last, np.full((len(last), 1), MASK, np.int32)], axis=1)


def _key(seed: int, epoch: int, purpose: int) -> int:
    return (seed * 1_000_003 + epoch) * 2 + purpose
