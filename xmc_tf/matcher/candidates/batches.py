"""This rank's part of each global batch, made ready in the background while the step before it computes.

A plain thread and a queue: making a batch is numpy and a compiled kernel of a few tenths of a millisecond, so there is
nothing that several threads could share, and TensorFlow lets go of Python's lock while a step computes. Measured on two
cores beside steps of 3 and of 75 ms, a step waits 0.02 to 0.1 ms for its batch. With ``tf.data`` it was 1.4 to 2.3 ms:
``from_generator`` runs the same Python, and makes and hands over each tensor between two steps.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data import TokenStore, epoch_batches, share_of_batch
from xmc_tf.matcher.candidates.choosing import CandidateSampler, EveryNode

# How long the thread waits before it looks whether it shall end.
_LOOK = 0.1


class Batch(NamedTuple):
    """What one rank computes in one step.

    Attributes:
        epoch: which pass over the documents this is, from 0.
        step: which batch of the epoch, from 0.
        documents: int64 [n], this rank's rows of the store; n may be 0.
        ids: int32 [n, T], padded on the right.
        mask: int32 [n, T], 1 for a token.
        candidates: int64, flat: the nodes each document is scored against.
        splits: int64 [n + 1], where each document's candidates begin.
        targets: float32, flat: 1 for a label, 0 for a negative.
        weights: float32, flat: the weight of a label, 1 for a negative.
        global_count: how many documents the batch has on all ranks together.
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


class TrainingBatches:
    """The batches of fine-tuning, epoch after epoch, the same global ones on any number of ranks.

    Example:
        >>> batches = TrainingBatches(store, sampler, batch=64, seed=0, pad_id=0, rank=rank, size=size)
        >>> with batches.stream(epoch=0, step=0) as stream:
        ...     for batch in stream:
        ...         train(batch)

    Args:
        store: the tokens of all documents.
        sampler: draws their candidates.
        batch: documents of a global batch: those of all ranks together.
        seed: of the order.
        pad_id: what stands behind a document's end.
        rank: number of this rank.
        size: number of ranks.
        rows: the documents to train on; None for all. The others may be held out to validate on.
        token_budget: the most tokens of a global batch, padding counted in; ``batch`` is then the most documents.
        ahead: how many batches are kept ready.
    """

    def __init__(
        self,
        store: TokenStore,
        sampler: CandidateSampler | EveryNode,
        *,
        batch: int,
        seed: int,
        pad_id: int,
        rank: int = 0,
        size: int = 1,
        rows: np.ndarray | None = None,
        token_budget: int | None = None,
        ahead: int = 4,
    ) -> None:
        if not 0 <= rank < size:
            raise InputError("no such rank", expected=f"0 to {size - 1}", received=str(rank))
        if sampler.task.nr_documents != len(store):
            raise InputError(
                "the labels do not fit the tokenized documents",
                expected=f"{len(store):,} rows",
                received=f"{sampler.task.nr_documents:,}",
            )
        self.rows = np.arange(len(store)) if rows is None else np.asarray(rows, np.int64)
        if not len(self.rows):
            raise InputError("there are no documents to train on", expected="one document or more", received="none")
        self._store, self._sampler = store, sampler
        self._batch, self._seed, self._pad_id = batch, seed, pad_id
        self._rank, self._size = rank, size
        self._token_budget, self._ahead = token_budget, ahead
        self._lengths = store.lengths[self.rows]
        self._plan: tuple[int, list[np.ndarray]] = -1, []

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The documents of each global batch of an epoch."""
        known, plan = self._plan  # at once: the background thread may replace it by another epoch's
        if known != epoch:
            batches = epoch_batches(
                self._lengths, self._batch, seed=self._seed, epoch=epoch, token_budget=self._token_budget
            )
            plan = [self.rows[batch] for batch in batches]
            self._plan = epoch, plan
        return plan

    def steps_of(self, epoch: int) -> int:
        """How many global batches an epoch has; with a token budget, epochs differ."""
        return -(-len(self.rows) // self._batch) if self._token_budget is None else len(self.plan(epoch))

    def make(self, epoch: int, step: int) -> Batch:
        """This rank's part of one global batch, made at once."""
        everyone = self.plan(epoch)[step]
        documents = share_of_batch(everyone, self._store.lengths, self._rank, self._size)
        # No encoder takes rows without a place, so an empty part is one token wide.
        width = max(1, int(self._store.lengths[documents].max(initial=0)))
        ids, mask = self._store.padded(documents, pad_id=self._pad_id, to=width)
        chosen = self._sampler.of(documents, epoch)
        return Batch(
            epoch, step, documents, ids, mask, chosen.ids, chosen.splits, chosen.targets, chosen.weights, len(everyone)
        )

    def stream(self, epoch: int = 0, step: int = 0) -> "BatchStream":
        """The batches from this place on, without end, made ready by a thread that ends with the stream.

        Args:
            epoch: where to begin.
            step: the first batch of that epoch; its number of steps for the beginning of the next.
        """

        def endless() -> Iterator[Batch]:
            here, first = epoch, step
            while True:
                for number in range(first, len(self.plan(here))):
                    yield self.make(here, number)
                here, first = here + 1, 0

        return BatchStream(endless, self._ahead)


class BatchStream:
    """An iterator whose next items a thread makes ready; to be closed, best by ``with``.

    Args:
        source: gives the items; called and gone through by the thread.
        ahead: how many items are kept ready.
    """

    def __init__(self, source: Callable[[], Iterator[Batch]], ahead: int) -> None:
        self._ready: queue.Queue = queue.Queue(max(1, ahead))
        self._stop = threading.Event()
        # The thread must not know the stream itself, or one that is forgotten would never end.
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
        """How many batches wait."""
        return self._ready.qsize()

    def close(self) -> None:
        """Ends the thread and waits for it."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _fill(source: Callable[[], Iterator[Batch]], ready: queue.Queue, stop: threading.Event) -> None:
    """Puts items, and at last the end or the error, into the queue, until it shall stop."""
    items = source()
    while not stop.is_set():
        try:
            item: object = next(items, StopIteration())
        except Exception as error:  # noqa: BLE001 - raised again where the batch is waited for
            item = error
        while not stop.is_set():
            try:
                ready.put(item, timeout=_LOOK)
                break
            except queue.Full:
                continue
        if isinstance(item, BaseException):
            return
