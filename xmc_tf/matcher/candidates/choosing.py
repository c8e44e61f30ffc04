"""The nodes of a level on which a document is trained: its labels, and negatives below its matched parents."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.kernels import kernel_view
from xmc_tf.matcher.candidates.kernels import choose_candidates, count_candidates
from xmc_tf.matcher.levels import LevelTask

_NO_CAP = np.iinfo(np.int64).max


class NodeCandidates(NamedTuple):
    """The candidates of some documents, document after document, in ascending order within a document."""

    ids: np.ndarray  # int64, nodes of the level in the order of the tree
    splits: np.ndarray  # int64 [documents + 1], position of each document's first candidate; a document may have none
    targets: np.ndarray  # float32, 1 for a label of the document, 0 for a negative
    weights: np.ndarray  # float32, the weight of a label, 1 for a negative


def parents_matched(
    task: LevelTask,
    negative_sampling: str,
    true_parents: spmatrix | None = None,
    predicted_parents: spmatrix | None = None,
) -> csr_matrix | None:
    """Return the parents whose children are a document's candidates: documents × parents, all ones; None at the top.

    "tfn" takes the parents of its labels, "man" those that the level above predicts, even with score 0.
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
    """A sampler of documents' candidates, whose result does not depend on the batch or the rank.

    All labels of a document are candidates, also those below no matched parent. If there are more candidates than
    ``cap``, negatives are drawn without replacement; if the labels alone exceed ``cap``, labels are drawn. Each epoch
    draws again.
    """

    def __init__(self, task: LevelTask, matched: spmatrix | None, cap: int | None = None, seed: int = 0) -> None:
        self.task = task
        self._cap = _NO_CAP if cap is None or matched is None else cap
        # The level is part of the key, so that the draws of two levels are independent.
        self._key = np.random.SeedSequence([seed, task.level]).generate_state(1, np.uint64)[0]
        starts, parents = _root_for_all(task.nr_documents) if matched is None else _rows(matched)
        self._places = (
            kernel_view(task.splits, np.int64),
            starts,
            parents,
            kernel_view(task.targets.indptr, np.int64),
            kernel_view(task.targets.indices, np.int32),
        )
        self._label_weights = kernel_view(task.targets.data, np.float32)

    def of(self, documents: np.ndarray, epoch: int) -> NodeCandidates:
        """Return the candidates of these documents in this epoch."""
        documents = np.require(documents, np.int64, ["C"])
        totals = count_candidates(documents, *self._places)
        splits = np.zeros(len(documents) + 1, np.int64)
        np.cumsum(np.minimum(totals, self._cap), out=splits[1:])
        ids = np.empty(splits[-1], np.int64)
        targets, weights = np.empty(len(ids), np.float32), np.empty(len(ids), np.float32)
        key = np.random.SeedSequence([int(self._key), epoch]).generate_state(1, np.uint64)[0]
        choose_candidates(documents, *self._places, self._label_weights, totals, splits, key, ids, targets, weights)
        return NodeCandidates(ids, splits, targets, weights)


class EveryNode:
    """A sampler for levels on which every document has all nodes as candidates.

    It returns only the labels of each document, because all other nodes are negatives.
    """

    def __init__(self, task: LevelTask) -> None:
        self.task = task

    def of(self, documents: np.ndarray, epoch: int) -> NodeCandidates:
        """Return the labels of these documents, the same in every epoch."""
        rows = self.task.targets[np.asarray(documents, np.int64)]
        ids = rows.indices.astype(np.int64)
        return NodeCandidates(ids, rows.indptr.astype(np.int64), np.ones(len(ids), np.float32), rows.data)


def _root_for_all(nr_documents: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(nr_documents + 1, dtype=np.int64), np.zeros(nr_documents, np.int32)


def _rows(matched: spmatrix) -> tuple[np.ndarray, np.ndarray]:
    """Return row pointers and columns of a matrix, sorted and without duplicates."""
    canonical = csr_matrix(matched, copy=True)
    canonical.sum_duplicates()
    return canonical.indptr.astype(np.int64), canonical.indices.astype(np.int32)
