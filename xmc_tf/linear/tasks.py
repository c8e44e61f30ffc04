"""The smallest pieces of training: some sibling labels of one cluster, with the instances matched to it.

A piece's result depends on nothing but the piece: not on the thread or the rank that solves it, nor on what runs beside
it. Which labels share a piece does matter (they share the order in which the instances are visited), so every way to
train takes the same pieces.
"""

from threading import local
from typing import NamedTuple

import numpy as np

from xmc_tf.common.kernels import kernel_view
from xmc_tf.data import Features
from xmc_tf.linear.kernels.dual import HINGE, LOGISTIC, SQUARED_HINGE, solve_dual
from xmc_tf.linear.kernels.emit import Columns
from xmc_tf.linear.kernels.gather import gather
from xmc_tf.linear.kernels.lanes import WIDTH, aligned_zeros
from xmc_tf.linear.kernels.primal import solve_primal
from xmc_tf.linear.problems import LevelProblem

# A cluster with more entries than these (a minute of one thread) may be solved by a team, its documents dealt into
# parts of about so many; but only with so many documents a feature: with few of them a team's way costs several times
# the work (docs/explanation/rankers-over-ranks.md, "How far it goes"). It depends on the problem, and never on who will
# solve it.
WIDE_ENTRIES, PART_ENTRIES, MOST_PARTS = 200_000_000, 100_000_000, 64
WIDE_DOCUMENTS_A_FEATURE = 12
LABELS_PER_TASK = 64  # enough that the gathered instances and the lanes are well used, few enough to share out
_LOSSES = {"L2R_L2LOSS_SVC_DUAL": SQUARED_HINGE, "L2R_L1LOSS_SVC_DUAL": HINGE, "L2R_LR_DUAL": LOGISTIC}
_NOTHING = np.zeros(0, np.float32)


class LevelTasks(NamedTuple):
    """The tasks of a level, in the order of its clusters.

    Args:
        cluster: the cluster of each task.
        begin: its first label, counted within the cluster, the most frequent label first.
        end: the one behind its last label.
        work: how many entries of the features it will touch in one pass, for all its labels.
        parts: into how many its documents are dealt for a team (see ``wide.py``); 0: it is one thread's.
    """

    cluster: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    work: np.ndarray
    parts: np.ndarray


class Instances:
    """The training features in the form that kernels read, shared by all threads.

    Args:
        X: the features; what is mapped into memory stays so.
    """

    def __init__(self, X: Features) -> None:
        self.nr_rows, self.nr_sparse = X.nr_rows, X.nr_sparse
        if X.sparse is not None:
            self.indptr = kernel_view(X.sparse.indptr, np.int64)
            self.indices = kernel_view(X.sparse.indices, np.int32)
            self.data = kernel_view(X.sparse.data, np.float32)
        else:
            self.indptr = np.zeros(X.nr_rows + 1, np.int64)
            self.indices, self.data = np.zeros(0, np.int32), _NOTHING
        self.dense = np.zeros((X.nr_rows, 0), np.float32) if X.dense is None else kernel_view(X.dense, np.float32)
        self.dense_square = _NOTHING if X.dense is None else np.einsum("ij,ij->i", X.dense, X.dense)
        self._scratch = local()

    @property
    def entries(self) -> np.ndarray:
        """How many numbers each instance has."""
        return np.diff(self.indptr) + self.dense.shape[1] + 1

    def slot(self) -> np.ndarray:
        """This thread's zeroed scratch over all sparse features."""
        if not hasattr(self._scratch, "slot"):
            self._scratch.slot = np.zeros(self.nr_sparse, np.int32)
        return self._scratch.slot


def level_tasks(instances: Instances, problem: LevelProblem) -> LevelTasks:
    """A level's clusters as tasks, wide ones cut into pieces."""
    smooth = problem.params.solver_type.startswith("L2R_L2LOSS")
    documents = np.full(problem.clusters.shape[1], instances.nr_rows)
    if problem.matched is not None:
        documents = np.diff(problem.matched.indptr)
    features = instances.nr_sparse + instances.dense.shape[1]
    children = np.diff(problem.clusters.indptr)
    return cut_clusters(children, _matched_entries(instances, problem), documents / max(features, 1), smooth)


def cut_clusters(
    children: np.ndarray, entries: np.ndarray, documents_a_feature: np.ndarray, smooth: bool = True
) -> LevelTasks:
    """Clusters as tasks.

    Args:
        children: how many labels each cluster has.
        entries: how many numbers the instances matched to it have.
        documents_a_feature: how many of these instances there are, by the number of all features.
        smooth: whether the loss is one that a team can minimise.
    """
    children = children.astype(np.int64)
    pieces = -(-children // LABELS_PER_TASK)
    cluster = np.repeat(np.arange(len(children)), pieces)
    begin = LABELS_PER_TASK * (np.arange(len(cluster)) - np.repeat(np.cumsum(pieces) - pieces, pieces))
    end = np.minimum(begin + LABELS_PER_TASK, children[cluster])
    # One pass gathers the instances, then one goes over them for each register of labels.
    work = entries[cluster].astype(np.int64) * (1 + -(-(end - begin) // WIDTH))
    wide = (entries > WIDE_ENTRIES) & (documents_a_feature >= WIDE_DOCUMENTS_A_FEATURE) & smooth
    parts = np.where(wide, _power_of_two(entries / PART_ENTRIES), 0)
    return LevelTasks(cluster, begin, end, work, parts[cluster])


def _power_of_two(wanted: np.ndarray) -> np.ndarray:
    """The next power of two, from 2 to the most parts: teams of any size get even shares, or nearly."""
    return (1 << np.ceil(np.log2(np.clip(wanted, 2, MOST_PARTS))).astype(np.int64)).astype(np.int64)


def task_labels(problem: LevelProblem, cluster: int, begin: int, end: int) -> np.ndarray:
    """The labels of a task: those that take many passes start early, so that the lanes empty together."""
    span = slice(problem.clusters.indptr[cluster], problem.clusters.indptr[cluster + 1])
    labels = problem.clusters.indices[span].astype(np.int64)
    indptr = problem.labels.indptr
    frequency = indptr[labels + 1] - indptr[labels]
    return labels[np.argsort(-frequency, kind="stable")][begin:end]


def solve_task(instances: Instances, problem: LevelProblem, cluster: int, labels: np.ndarray, seed: int) -> Columns:
    """Gathers the instances of one task and solves it.

    Args:
        instances: the training features.
        problem: the task's level.
        cluster: the task's cluster.
        labels: the task's labels, as :func:`task_labels` gives them.
        seed: of the orders in which the solvers visit the instances.
    """
    params = problem.params
    rows, in_match = matched_rows(instances, problem, cluster, labels)
    primal = params.solver_type == "L2R_L2LOSS_SVC_PRIMAL"
    bias = max(params.bias, 0.0)
    gathered = gather(
        instances.indptr, instances.indices, instances.data, rows, instances.slot(), not primal,
        instances.dense_square, bias,
    )  # fmt: skip
    n, size = len(rows), len(gathered.names) + 1 + instances.dense.shape[1]
    signs = np.zeros((n, WIDTH), np.int8)
    # The kernels take a single row for "no costs", so a single instance with one gets a row more.
    cost = aligned_zeros(1 if problem.costs is None else max(n, 2))
    y_indptr, y_indices, y_cost = problem.kernel_labels
    limit = params.nonzeros_limit or 0
    if primal:
        columns, _ = solve_primal(
            gathered, in_match, instances.nr_sparse, instances.dense, labels, y_indptr, y_indices, y_cost,
            signs, cost, params.Cp, params.Cn, bias, params.newton_eps, params.max_iter, params.threshold, limit,
        )  # fmt: skip
    else:
        columns, _ = solve_dual(
            gathered, in_match, instances.nr_sparse, instances.dense, labels, y_indptr, y_indices, y_cost,
            aligned_zeros(size), aligned_zeros(n), signs, cost, _LOSSES[params.solver_type], params.Cp, params.Cn,
            bias, params.eps, params.max_iter, params.threshold, limit, seed,
        )  # fmt: skip
    used = int(columns.indptr[columns.filled[0]])
    return columns._replace(features=columns.features[:used].copy(), weights=columns.weights[:used].copy())


def _matched_entries(instances: Instances, problem: LevelProblem) -> np.ndarray:
    """How many numbers the instances matched to each cluster have."""
    entries = instances.entries
    if problem.matched is None:
        return np.full(problem.clusters.shape[1], entries.sum())
    before = np.concatenate(([0], np.cumsum(entries[problem.matched.indices])))
    return np.diff(before[problem.matched.indptr])


def matched_rows(
    instances: Instances, problem: LevelProblem, cluster: int, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The sorted instances of a task, and which of them are negatives for all its labels."""
    if problem.matched is None:
        return np.arange(instances.nr_rows, dtype=np.int32), np.ones(instances.nr_rows, np.bool_)
    matched = problem.matched
    rows = kernel_view(matched.indices[matched.indptr[cluster] : matched.indptr[cluster + 1]], np.int32)
    if problem.covered:
        return rows, np.ones(len(rows), np.bool_)
    Y = problem.labels
    positives = [Y.indices[Y.indptr[label] : Y.indptr[label + 1]] for label in labels]
    everyone = np.unique(np.concatenate([rows, *positives])).astype(np.int32)
    return everyone, np.isin(everyone, rows, assume_unique=True)
