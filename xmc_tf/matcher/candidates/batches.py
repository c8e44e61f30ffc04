"""This rank's part of each global batch.

A batch takes a few tenths of a millisecond, which a step of an encoder hides: no thread prepares it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xmc_tf.data import TokenStore, epoch_batches, share_of_batch
from xmc_tf.matcher.candidates.choosing import CandidateSampler, EveryNode


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
        >>> for batch in batches.stream(epoch=0, step=0):
        ...     train(batch)

    Args:
        data: the documents, with their candidates.
        batch: number of windows of a global batch, over all ranks.
        seed: seed of the order of the documents.
        rank: number of this rank.
        size: number of ranks.
        token_budget: maximum number of tokens of a global batch, padding included; ``batch`` is then the maximum
            number of windows. Default: no limit.
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
    ) -> None:
        store = data.store
        rows = np.arange(store.nr_documents) if data.rows is None else np.asarray(data.rows, np.int64)
        self.rows, _ = store.windows_of(rows)
        self._data, self._batch, self._seed = data, batch, seed
        self._rank, self._size = rank, size
        self._token_budget = token_budget
        self._lengths = store.lengths[self.rows]
        self._plan: tuple[int, list[np.ndarray]] = -1, []

    def plan(self, epoch: int) -> list[np.ndarray]:
        """Return the windows of each global batch of an epoch."""
        known, plan = self._plan
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

    def stream(self, epoch: int = 0, step: int = 0) -> Iterator[Batch]:
        """Yield the batches, endlessly.

        Args:
            epoch: first epoch.
            step: first batch of that epoch. The epoch's number of batches means the beginning of the next epoch.
        """
        while True:
            for number in range(step, len(self.plan(epoch))):
                yield self.make(epoch, number)
            epoch, step = epoch + 1, 0
