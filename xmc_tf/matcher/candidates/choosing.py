"""The nodes of a level that a document is trained on: its labels, and negatives below its matched parents."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.kernels import kernel_view
from xmc_tf.matcher.candidates.kernels import choose_candidates, count_candidates
from xmc_tf.matcher.levels import LevelTask

_NO_CAP = np.iinfo(np.int64).max


class NodeCandidates(NamedTuple):
    """The candidates of some documents, one document after the other, in ascending order within a document.

    Attributes:
        ids: int64, nodes of the level in the order of the tree.
        splits: int64 [documents + 1], position of each document's first candidate; a document may have none.
        targets: float32, 1 for a label of the document, 0 for a negative.
        weights: float32, the weight of a label, 1 for a negative.
    """

    ids: np.ndarray
    splits: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


def parents_matched(
    task: LevelTask,
    negative_sampling: str,
    true_parents: spmatrix | None = None,
    predicted_parents: spmatrix | None = None,
) -> csr_matrix | None:
    """Return the parents whose children are a document's candidates.

    Args:
        task: the level.
        negative_sampling: "tfn" (the parents of its labels), "man" (the parents that the level above predicts), or
            "tfn+man".
        true_parents: documents × parents, the targets of the level above; for "tfn".
        predicted_parents: documents × parents, the predictions of the level above; for "man". An entry counts even
            if its score is 0.

    Returns:
        Documents × parents, sorted, all ones; None at the top, where all nodes are candidates.
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
    ``cap``, negatives are drawn without replacement; if the labels alone are more than ``cap``, labels are drawn. Each
    epoch draws again.

    Example:
        >>> tree = LabelTree(splits=([0, 2], [0, 2, 5]), labels=[1, 4, 0, 2, 3])
        >>> top, leaves = levels_of(tree, csr_matrix([[0, 1, 0, 0, 0]]), max_match_clusters=5)
        >>> CandidateSampler(leaves, parents_matched(leaves, "tfn", top.targets)).of(np.array([0]), epoch=0).ids
        array([0, 1])

    Args:
        task: the level.
        matched: documents × parents, the result of ``parents_matched``; None at the top, where all nodes are
            candidates and ``cap`` has no effect.
        cap: maximum number of candidates per document. Default: no limit. A lower cap makes steps faster and uses
            fewer negatives.
        seed: seed of the draws.
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
        """Return the candidates of these documents in this epoch.

        Args:
            documents: rows of the task's targets.
            epoch: number of the epoch, from 0.
        """
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
    """A sampler for levels whose nodes are all candidates of every document.

    It has the interface of ``CandidateSampler``, but returns only the labels of each document: all other nodes are
    negatives.

    Args:
        task: the level.
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
