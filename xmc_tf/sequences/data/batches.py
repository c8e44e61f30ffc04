"""Batches for training and evaluation. Each rank makes its part of global batches that do not depend on the ranks."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.sequences.data.folder import UserHistories
from xmc_tf.sequences.data.windows import HELD_OUT, MASK, PAD, HistoryWindows, aligned, mixed, shuffled

Split = Literal["validation", "test"]


class SequenceBatch(NamedTuple):
    """This rank's sequences of a step: ``[sequences, max_len]``, with item numbers, ``PAD`` or ``MASK``."""

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
        self,
        parts: Sequence[UserHistories],
        shape: BatchShape,
        step: int,
        batch: int,
        seed: int,
        rank: int = 0,
        size: int = 1,
    ) -> None:
        self._windows = HistoryWindows(parts, shape.max_len + shape.causal, step)
        self._shape, self._batch, self._seed = shape, batch, seed
        self._rank, self._size = rank, size
        if not len(self._windows):
            raise InputError(
                "there are no sequences to train on",
                expected="users with at least two items besides the two that are held out",
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
        """Return this rank's part of a batch."""
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
        """Yield the endless stream of batches from a step on, which threads prepare ahead."""
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
    """The last item of each user (test) or the last but one (validation), of users with at least three items."""

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
        """Yield this rank's inputs ``[users, max_len]`` and the held-out items ``[users]`` of each batch."""
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
    """Return model inputs whose last position predicts the item after each history ``items[begin:end]``."""
    if shape.causal:
        return aligned(items, begin, end, shape.max_len)
    last = aligned(items, begin, end, shape.max_len - 1)
    return np.concatenate([last, np.full((len(last), 1), MASK, np.int32)], axis=1)


def _key(seed: int, epoch: int, purpose: int) -> int:
    return (seed * 1_000_003 + epoch) * 2 + purpose
