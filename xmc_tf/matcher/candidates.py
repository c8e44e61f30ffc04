"""Batches of fine-tuning, and candidates: each document's labels, and negatives below its matched parents."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.array_views import kernel_view
from xmc_tf.common.compiled import inner, kernel
from xmc_tf.data import TokenStore, epoch_batches, share_of_batch
from xmc_tf.matcher.tasks import LevelTask

_NO_CAP = np.iinfo(np.int64).max


class NodeCandidates(NamedTuple):
    """The candidates of several documents, concatenated; each document's candidates are in ascending order."""

    ids: np.ndarray  # int64, nodes of the level in the order of the tree
    splits: np.ndarray  # int64 [documents + 1], position of each document's first candidate; a document may have none
    targets: np.ndarray  # float32, 1 for a label of the document, 0 for a negative
    weights: np.ndarray  # float32, the weight of a label, 1 for a negative


def parents_matched(
    task: LevelTask, negative_sampling: str, true_parents: spmatrix | None = None,
    predicted_parents: spmatrix | None = None,
) -> csr_matrix | None:  # fmt: skip
    """Return a documents × parents matrix of ones at the parents whose children are candidates; None at the top.
    "tfn" selects the parents of a document's labels, "man" the nodes predicted at the level above, even with score 0.
    """
    if task.nr_parents == 1:
        return None
    total = None
    for part in negative_sampling.split("+"):
        parents = {"tfn": true_parents, "man": predicted_parents}.get(part)
        assert parents is not None  # the matcher has predicted what "man" needs
        ones = csr_matrix(parents, dtype=np.float32, copy=True)
        ones.data[:] = 1
        total = ones if total is None else total + ones
    assert total is not None  # split returns one part at least
    total.sum_duplicates()
    total.data[:] = 1
    return total


class CandidateSampler:
    """A sampler of documents' candidates; batch and rank do not affect the result. All labels of a document are
    candidates, even if their parents do not match. If there are more candidates than ``cap``, negatives are drawn
    without replacement; if labels alone exceed it, they are drawn. Each epoch draws again. The top level has no cap.
    """

    def __init__(self, task: LevelTask, matched: spmatrix | None, cap: int | None = None, seed: int = 0) -> None:
        self.task = task
        self._cap = _NO_CAP if cap is None or matched is None else cap
        # The level is part of the key, so that the draws of two levels are independent.
        self._key = np.random.SeedSequence([seed, task.level]).generate_state(1, np.uint64)[0]
        if matched is None:  # all documents match the root
            starts, parents = np.arange(task.nr_documents + 1), np.zeros(task.nr_documents, np.int32)
        else:
            rows = csr_matrix(matched, copy=True)
            rows.sum_duplicates()
            starts, parents = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
        self._places = (
            kernel_view(task.splits, np.int64), starts, parents, kernel_view(task.targets.indptr, np.int64),
            kernel_view(task.targets.indices, np.int32),
        )  # fmt: skip
        self._label_weights = kernel_view(task.targets.data, np.float32)

    def of(self, documents: np.ndarray, epoch: int) -> NodeCandidates:
        """Return the candidates of these documents in this epoch."""
        documents = np.require(documents, np.int64, ["C"])
        totals = _count_candidates(documents, *self._places)
        splits = np.zeros(len(documents) + 1, np.int64)
        np.cumsum(np.minimum(totals, self._cap), out=splits[1:])
        ids = np.empty(splits[-1], np.int64)
        targets, weights = np.empty(len(ids), np.float32), np.empty(len(ids), np.float32)
        key = np.random.SeedSequence([int(self._key), epoch]).generate_state(1, np.uint64)[0]
        _choose_candidates(documents, *self._places, self._label_weights, totals, splits, key, ids, targets, weights)
        return NodeCandidates(ids, splits, targets, weights)


class EveryNode:
    """A sampler for levels where all nodes are candidates. It returns only positives; all other nodes are negatives."""

    def __init__(self, task: LevelTask) -> None:
        self.task = task

    def of(self, documents: np.ndarray, epoch: int) -> NodeCandidates:
        """Return the labels of these documents, which are the same in every epoch."""
        rows = self.task.targets[np.asarray(documents, np.int64)]
        ids = rows.indices.astype(np.int64)
        return NodeCandidates(ids, rows.indptr.astype(np.int64), np.ones(len(ids), np.float32), rows.data)


class Batch(NamedTuple):
    """The part of a global batch that one rank processes."""

    epoch: int  # from 0
    step: int  # number of the batch in the epoch, from 0
    documents: np.ndarray  # int64 [n], the document of each of this rank's windows; n may be 0
    ids: np.ndarray  # int32 [n, T], padded on the right; or the output of frozen layers, [n, T, dim]
    mask: np.ndarray  # int32 [n, T], 1 for a token
    candidates: np.ndarray  # int64, flat: the nodes against which each document is scored
    splits: np.ndarray  # int64 [n + 1], where each document's candidates start
    targets: np.ndarray  # float32, flat: 1 for a label, 0 for a negative
    weights: np.ndarray  # float32, flat: the weight of a label, 1 for a negative
    global_count: int  # number of windows of the batch on all ranks


@dataclass(frozen=True, eq=False)
class LevelData:
    """The documents on which a level is trained, and the candidates against which they are scored."""

    store: TokenStore  # each window has the labels of its document
    sampler: CandidateSampler | EveryNode
    pad_id: int  # token id of the padding
    rows: np.ndarray | None = None  # the documents to train on; None: all


class TrainingBatches:
    """The batches of all epochs of fine-tuning. Global batches do not depend on the number of ranks: they have up to
    ``batch`` windows, and up to ``token_budget`` tokens including padding.
    """

    def __init__(
        self, data: LevelData, *, batch: int, seed: int, rank: int = 0, size: int = 1, token_budget: int | None = None
    ) -> None:
        store = data.store
        rows = np.arange(store.nr_documents) if data.rows is None else np.asarray(data.rows, np.int64)
        self.rows, _ = store.windows_of(rows)
        self.documents_per_window = len(rows) / max(len(self.rows), 1)
        self._data, self._batch, self._seed = data, batch, seed
        self._rank, self._size = rank, size
        self._token_budget = token_budget
        self._lengths = store.lengths[self.rows]
        self._plan: tuple[int, list[np.ndarray]] = -1, []

    def plan(self, epoch: int) -> list[np.ndarray]:
        """Return the windows of each global batch in an epoch."""
        known, plan = self._plan
        if known != epoch:
            batches = epoch_batches(
                self._lengths, self._batch, seed=self._seed, epoch=epoch, token_budget=self._token_budget
            )
            plan = [self.rows[batch] for batch in batches]
            self._plan = epoch, plan
        return plan

    def steps_of(self, epoch: int) -> int:
        """Return the number of global batches in an epoch, which varies between epochs if there is a token budget."""
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
        """Yield batches endlessly, starting at a step; if the epoch has no such step, start with the next epoch."""
        while True:
            for number in range(step, len(self.plan(epoch))):
                yield self.make(epoch, number)
            epoch, step = epoch + 1, 0


@inner
def _mix(z: np.uint64) -> np.uint64:
    """Apply splitmix64's finalizer: each bit of the result depends on every bit of the argument."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inner
def _drawn(state: np.uint64, wanted: int, left: int) -> bool:
    """Return whether to draw the next item, when ``wanted`` of the ``left`` remaining items are still to be drawn."""
    return (_mix(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0) * left < wanted


@kernel
def _count_candidates(
    documents: np.ndarray, splits: np.ndarray, matched_starts: np.ndarray, matched: np.ndarray, true_starts: np.ndarray,
    true: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Return each document's number of candidates: the children of its matched parents, and its labels elsewhere."""
    totals = np.zeros(len(documents), np.int64)
    for i in range(len(documents)):
        document = documents[i]
        label, last = true_starts[document], true_starts[document + 1]
        total = last - label
        for k in range(matched_starts[document], matched_starts[document + 1]):
            begin, end = splits[matched[k]], splits[matched[k] + 1]
            total += end - begin
            while label < last and true[label] < begin:
                label += 1
            while label < last and true[label] < end:
                label += 1
                total -= 1
        totals[i] = total
    return totals


@kernel
def _choose_candidates(
    documents: np.ndarray, splits: np.ndarray, matched_starts: np.ndarray, matched: np.ndarray, true_starts: np.ndarray,
    true: np.ndarray, true_weights: np.ndarray, totals: np.ndarray, bounds: np.ndarray, key: np.uint64, ids: np.ndarray,
    targets: np.ndarray, weights: np.ndarray,
) -> None:  # fmt: skip
    """Write each document's candidates in ascending order: its labels and a sample of the negatives. Drawing each of
    the ``left`` remaining items with probability ``wanted / left`` yields exactly the wanted number of items, and all
    subsets are equally likely (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S).
    """
    step = np.uint64(0x9E3779B97F4A7C15)
    for i in range(len(documents)):
        document = documents[i]
        state = _mix(key + np.uint64(document) * step)
        label, last = true_starts[document], true_starts[document + 1]
        room, to = bounds[i + 1] - bounds[i], bounds[i]
        labels_left = last - label
        labels_wanted = min(labels_left, room)
        others_left = totals[i] - labels_left
        others_wanted = room - labels_wanted
        # A last, empty range after all nodes collects the labels that are below no matched parent.
        stop = matched_starts[document + 1]
        for k in range(matched_starts[document], stop + 1):
            begin = splits[matched[k]] if k < stop else splits[-1]
            end = splits[matched[k] + 1] if k < stop else splits[-1]
            node = begin
            while True:
                is_label = label < last and (true[label] < begin or (node < end and true[label] == node))
                if is_label:
                    here = true[label]
                    weight = true_weights[label]
                    label += 1
                    wanted, left = labels_wanted, labels_left
                elif node < end:
                    here, weight = node, np.float32(1)
                    wanted, left = others_wanted, others_left
                else:
                    break
                taken = wanted == left
                if not taken and wanted > 0:
                    state += step
                    taken = _drawn(state, wanted, left)
                if taken:
                    ids[to], weights[to] = here, weight
                    targets[to] = np.float32(1) if is_label else np.float32(0)
                    to += 1
                if is_label:
                    labels_left -= 1
                    labels_wanted -= taken
                else:
                    others_left -= 1
                    others_wanted -= taken
                if here == node:
                    node += 1
