"""This rank's part of each global batch. No thread prepares batches, because an encoder's step takes much longer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xmc_tf.data import TokenStore, epoch_batches, share_of_batch
from xmc_tf.matcher.candidates.choosing import CandidateSampler, EveryNode


class Batch(NamedTuple):
    """One rank's part of a global batch."""

    epoch: int  # from 0
    step: int  # number of the batch in the epoch, from 0
    documents: np.ndarray  # int64 [n], the document of each of this rank's windows; n may be 0
    ids: np.ndarray  # int32 [n, T], padded on the right
    mask: np.ndarray  # int32 [n, T], 1 for a token
    candidates: np.ndarray  # int64, flat: the nodes against which each document is scored
    splits: np.ndarray  # int64 [n + 1], where each document's candidates start
    targets: np.ndarray  # float32, flat: 1 for a label, 0 for a negative
    weights: np.ndarray  # float32, flat: the weight of a label, 1 for a negative
    global_count: int  # number of windows of the batch on all ranks


@dataclass(frozen=True, eq=False)
class LevelData:
    """The documents of a level's training, and the candidates against which they are scored."""

    store: TokenStore  # each window has the labels of its document
    sampler: CandidateSampler | EveryNode
    pad_id: int  # token id of the padding
    rows: np.ndarray | None = None  # the documents to train on; None: all


class TrainingBatches:
    """The batches of fine-tuning, epoch after epoch. The global batches do not depend on the number of ranks."""

    def __init__(
        self,
        data: LevelData,
        *,
        batch: int,  # windows of a global batch, over all ranks
        seed: int,
        rank: int = 0,
        size: int = 1,
        token_budget: int | None = None,  # maximum number of tokens of a global batch, with padding
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
        # Encoders reject sequences of length 0, so the width is at least 1.
        width = max(1, int(data.store.lengths[windows].max(initial=0)))
        ids, mask = data.store.padded(windows, pad_id=data.pad_id, to=width)
        documents = data.store.document_of(windows)
        chosen = data.sampler.of(documents, epoch)
        return Batch(
            epoch, step, documents, ids, mask, chosen.ids, chosen.splits, chosen.targets, chosen.weights, len(whole)
        )

    def stream(self, epoch: int = 0, step: int = 0) -> Iterator[Batch]:
        """Yield the batches, endlessly. A step beyond the epoch's last batch means the start of the next epoch."""
        while True:
            for number in range(step, len(self.plan(epoch))):
                yield self.make(epoch, number)
            epoch, step = epoch + 1, 0
