"""This rank's part of each global batch, prepared by a background thread while the previous step computes.

One thread and a queue suffice: a batch takes numpy and a compiled kernel a few tenths of a millisecond, and TensorFlow
releases Python's lock while a step computes. Measured on two cores with steps of 3 and of 75 ms, a step waits 0.02 to
0.1 ms for its batch. With ``tf.data`` it waited 1.4 to 2.3 ms, because ``from_generator`` runs the same Python code,
and converts each tensor, between two steps.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from xmc_tf.data import TokenStore, epoch_batches, share_of_batch
from xmc_tf.matcher.candidates.choosing import CandidateSampler, EveryNode

# Seconds that the thread waits for room in the queue before it checks whether the stream was closed.
_CHECK_S = 0.1


class Batch(NamedTuple):
    """One rank's part of a global batch.

    Attributes:
        epoch: number of the pass over the documents, from 0.
        step: number of the batch in the epoch, from 0.
        documents: int64 [n], the document of each of this rank's windows; n may be 0.
        ids: int32 [n, T], padded on the right.
        mask: int32 [n, T], 1 for a token.
        candidates: int64, flat: the nodes that each document is scored against.
        splits: int64 [n + 1], where each document's candidates begin.
        targets: float32, flat: 1 for a label, 0 for a negative.
        weights: float32, flat: the weight of a label, 1 for a negative.
        global_count: number of windows of the batch on all ranks.
    """

    epoch: int
    step: int
    documents: np.ndarray
    ids: np.ndarray
    mask: np.ndarray
    candidates: np.ndarray
    splits: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    global_count: int


@dataclass(frozen=True, eq=False)
class LevelData:
    """The documents of a level's training, and the candidates that they are scored against.

    Args:
        store: tokens of all documents; each window is trained on with the labels of its document.
        sampler: draws the candidates of the level.
        pad_id: token id that fills the space behind a document's end.
        rows: numbers of the documents to train on; the others may be held out for validation. Default: all.
    """

    store: TokenStore
    sampler: CandidateSampler | EveryNode
    pad_id: int
    rows: np.ndarray | None = None


class TrainingBatches:
    """The batches of fine-tuning, epoch after epoch. The global batches do not depend on the number of ranks.

    Example:
        >>> batches = TrainingBatches(LevelData(store, sampler, pad_id=0), batch=64, seed=0, rank=rank, size=size)
        >>> with batches.stream(epoch=0, step=0) as stream:
        ...     for batch in stream:
        ...         train(batch)

    Args:
        data: the documents, with their candidates.
        batch: number of windows of a global batch, over all ranks.
        seed: seed of the order of the documents.
        rank: number of this rank.
        size: number of ranks.
        token_budget: maximum number of tokens of a global batch, padding included; ``batch`` is then the maximum
            number of windows. Default: no limit.
        ahead: number of batches that are prepared in advance.
    """

    def __init__(
        self,
        data: LevelData,
        *,
        batch: int,
        seed: int,
        rank: int = 0,
        size: int = 1,
        token_budget: int | None = None,
        ahead: int = 4,
    ) -> None:
        store = data.store
        rows = np.arange(store.nr_documents) if data.rows is None else np.asarray(data.rows, np.int64)
        self.rows, _ = store.windows_of(rows)
        self._data, self._batch, self._seed = data, batch, seed
        self._rank, self._size = rank, size
        self._token_budget, self._ahead = token_budget, ahead
        self._lengths = store.lengths[self.rows]
        self._plan: tuple[int, list[np.ndarray]] = -1, []

    def plan(self, epoch: int) -> list[np.ndarray]:
        """Return the windows of each global batch of an epoch."""
        known, plan = self._plan  # read once: the background thread may replace it by another epoch's
        if known != epoch:
            batches = epoch_batches(
                self._lengths, self._batch, seed=self._seed, epoch=epoch, token_budget=self._token_budget
            )
            plan = [self.rows[batch] for batch in batches]
            self._plan = epoch, plan
        return plan

    def steps_of(self, epoch: int) -> int:
        """Return the number of global batches of an epoch; with a token budget, it varies."""
        return -(-len(self.rows) // self._batch) if self._token_budget is None else len(self.plan(epoch))

    def make(self, epoch: int, step: int) -> Batch:
        """Return this rank's part of one global batch."""
        data = self._data
        whole = self.plan(epoch)[step]
        windows = share_of_batch(whole, data.store.lengths, self._rank, self._size)
        # Encoders reject sequences of length 0, so an empty part is one token wide.
        width = max(1, int(data.store.lengths[windows].max(initial=0)))
        ids, mask = data.store.padded(windows, pad_id=data.pad_id, to=width)
        documents = data.store.document_of(windows)
        chosen = data.sampler.of(documents, epoch)
        return Batch(
            epoch, step, documents, ids, mask, chosen.ids, chosen.splits, chosen.targets, chosen.weights, len(whole)
        )

    def stream(self, epoch: int = 0, step: int = 0) -> "BatchStream":
        """Return an endless iterator over the batches, which a thread prepares until the stream is closed.

        Args:
            epoch: first epoch.
            step: first batch of that epoch. The epoch's number of batches means the beginning of the next epoch.
        """

        def endless() -> Iterator[Batch]:
            here, first = epoch, step
            while True:
                for number in range(first, len(self.plan(here))):
                    yield self.make(here, number)
                here, first = here + 1, 0

        return BatchStream(endless, self._ahead)


class BatchStream:
    """An iterator whose next items a thread prepares. Close it, best with a ``with`` statement.

    Args:
        source: returns the items; called and iterated over by the thread.
        ahead: number of items that are prepared in advance.
    """

    def __init__(self, source: Callable[[], Iterator[Batch]], ahead: int) -> None:
        self._ready: queue.Queue = queue.Queue(max(1, ahead))
        self._stop = threading.Event()
        # The thread must not refer to the stream: otherwise, a stream that nobody closes would never be collected.
        self._thread = threading.Thread(
            target=_fill, args=(source, self._ready, self._stop), name="batches", daemon=True
        )
        weakref.finalize(self, self._stop.set)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if self._stop.is_set():
            raise StopIteration
        item = self._ready.get()
        if isinstance(item, BaseException):
            self.close()
            raise item
        return item

    @property
    def ready(self) -> int:
        """Number of batches that are ready."""
        return self._ready.qsize()

    def close(self) -> None:
        """End the thread and wait for it."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _fill(source: Callable[[], Iterator[Batch]], ready: queue.Queue, stop: threading.Event) -> None:
    """Put the items into the queue, then the end or the error; return early when ``stop`` is set."""
    items = source()
    while not stop.is_set():
        try:
            item: object = next(items, StopIteration())
        except Exception as error:  # noqa: BLE001 - raised again by BatchStream
            item = error
        while not stop.is_set():
            try:
                ready.put(item, timeout=_CHECK_S)
                break
            except queue.Full:
                continue
        if isinstance(item, BaseException):
            return
