"""Tasks, the smallest units of training. A task trains some sibling labels of one cluster on the documents matched to
the cluster. All its labels visit the documents in the same order, so the result depends on the task alone and is the
same in every mode of training.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.sparse import spmatrix

from xmc_tf.common.array_views import kernel_view
from xmc_tf.common.lanes import WIDTH, aligned_zeros
from xmc_tf.common.progress import Progress
from xmc_tf.common.threads import thread_count
from xmc_tf.data import Features
from xmc_tf.params import LinearLevelParams, RankerParams
from xmc_tf.rankers.kernels.dual import HINGE, LOGISTIC, SQUARED_HINGE, DualScratch, solve_dual
from xmc_tf.rankers.kernels.emit import WeightColumns
from xmc_tf.rankers.kernels.gather import SolverSettings, gather
from xmc_tf.rankers.problems import LevelProblem, Levels
from xmc_tf.rankers.query_arrays import kernel_form

Result = TypeVar("Result")

LABELS_PER_TASK = 64  # enough to use gathered documents and lanes well, few enough to distribute
# The primal and the dual problem of the squared hinge have the same weights as their solution.
_LOSSES = {
    "L2R_L2LOSS_SVC_DUAL": SQUARED_HINGE, "L2R_L2LOSS_SVC_PRIMAL": SQUARED_HINGE,
    "L2R_L1LOSS_SVC_DUAL": HINGE, "L2R_LR_DUAL": LOGISTIC,
}  # fmt: skip


class LevelTasks(NamedTuple):
    """The tasks of a level, in the order of its clusters."""

    cluster: np.ndarray  # cluster of each task
    begin: np.ndarray  # position of its first label within the cluster, the most frequent label first
    end: np.ndarray  # position after its last label
    work: np.ndarray  # number of feature entries that one pass over all its labels reads


class Instances:
    """The training features in the form that kernels read, shared by all threads. Memory-mapped arrays stay mapped."""

    def __init__(self, X: Features, params: RankerParams) -> None:
        self.params = params
        self.nr_rows, self.nr_sparse = X.nr_rows, X.nr_sparse
        self.indptr, self.indices, self.data, self.dense = kernel_form(X)
        self.dense_square = np.zeros(0, np.float32)
        if X.dense is not None:
            self.dense_square = np.einsum("ij,ij->i", X.dense, X.dense)
        self._scratch = local()

    def levels(
        self, Y: spmatrix, chain: Sequence[spmatrix] | None, R: spmatrix | None = None,
        user_negatives: Mapping[int, spmatrix] | None = None,
    ) -> Levels:  # fmt: skip
        """Return a tree's training problems. All trainings make them here, so that none can miss a parameter."""
        return Levels(Y, chain, R, self.params, user_negatives)

    @property
    def entries(self) -> np.ndarray:
        """Number of feature values of each document, counting one for the bias."""
        return np.diff(self.indptr) + self.dense.shape[1] + 1

    def weights_shape(self, problem: LevelProblem) -> tuple[int, int]:
        """Return the shape of a level's W: rows are features, then the bias if there is one; columns are labels."""
        return int(self.nr_sparse + self.dense.shape[1] + (problem.bias > 0)), int(problem.clusters.shape[0])

    def slot(self) -> np.ndarray:
        """Return this thread's scratch array, which has one zero for each sparse feature."""
        if not hasattr(self._scratch, "slot"):
            self._scratch.slot = np.zeros(self.nr_sparse, np.int32)
        return self._scratch.slot


def level_tasks(instances: Instances, problem: LevelProblem) -> LevelTasks:
    """Return the tasks of a level. Each cluster is one task, or several tasks if it has many labels."""
    entries = instances.entries
    if problem.matched is None:
        matched = np.full(problem.clusters.shape[1], entries.sum())
    else:
        before = np.concatenate(([0], np.cumsum(entries[problem.matched.indices])))
        matched = np.diff(before[problem.matched.indptr])
    return cut_clusters(np.diff(problem.clusters.indptr), matched)


def cut_clusters(children: np.ndarray, entries: np.ndarray) -> LevelTasks:
    """Return the tasks of clusters with ``children`` labels and ``entries`` feature values in matched documents."""
    children = children.astype(np.int64)
    pieces = -(-children // LABELS_PER_TASK)
    cluster = np.repeat(np.arange(len(children)), pieces)
    begin = LABELS_PER_TASK * (np.arange(len(cluster)) - np.repeat(np.cumsum(pieces) - pieces, pieces))
    end = np.minimum(begin + LABELS_PER_TASK, children[cluster])
    # One pass gathers the documents, then there is one for each register of labels.
    work = entries[cluster].astype(np.int64) * (1 + -(-(end - begin) // WIDTH))
    return LevelTasks(cluster, begin, end, work)


def task_labels(problem: LevelProblem, tasks: LevelTasks, i: int) -> np.ndarray:
    """Return the labels of a task by descending frequency, so that lanes of a register end at about the same time."""
    cluster, indptr = int(tasks.cluster[i]), problem.labels.indptr
    span = slice(problem.clusters.indptr[cluster], problem.clusters.indptr[cluster + 1])
    labels = problem.clusters.indices[span].astype(np.int64)
    frequency = indptr[labels + 1] - indptr[labels]
    return labels[np.argsort(-frequency, kind="stable")][int(tasks.begin[i]) : int(tasks.end[i])]


def solve_task(
    instances: Instances, problem: LevelProblem, cluster: int, labels: np.ndarray, seed: int
) -> WeightColumns:
    """Solve one task. Its labels must be in the order of :func:`task_labels`."""
    rows, in_match = matched_rows(instances, problem, cluster, labels)
    settings = solver_settings(problem.params)
    gathered = gather(
        instances.indptr, instances.indices, instances.data, rows, instances.slot(), instances.dense_square,
        settings.bias,
    )  # fmt: skip
    n, size = len(rows), len(gathered.names) + 1 + instances.dense.shape[1]
    signs = np.zeros((n, WIDTH), np.int8)
    # For kernels, a single row means that all costs are 1, so a single document with costs gets one more row.
    cost = aligned_zeros(1 if problem.costs is None else max(n, 2))
    scratch = DualScratch(aligned_zeros(size), aligned_zeros(n), signs, cost)
    columns, _ = solve_dual(
        gathered, in_match, instances.nr_sparse, instances.dense, labels, problem.positives, scratch,
        _LOSSES[problem.params.solver_type], settings, seed,
    )  # fmt: skip
    used = int(columns.indptr[columns.filled[0]])
    return columns._replace(features=columns.features[:used].copy(), weights=columns.weights[:used].copy())


def solver_settings(params: LinearLevelParams) -> SolverSettings:
    return SolverSettings(
        cp=params.Cp, cn=params.Cn, bias=max(params.bias, 0.0),
        eps=params.newton_eps if params.solver_type == "L2R_L2LOSS_SVC_PRIMAL" else params.eps,
        max_iter=params.max_iter, threshold=params.threshold, max_nonzeros=params.nonzeros_limit or 0,
    )  # fmt: skip


def solve_in_threads(calls: Iterable[tuple[int, Callable[[], Result]]], title: str, threads: int) -> Iterator[Result]:
    """Run (number of labels, call) pairs in threads and yield the results in order. Pass the longest calls first."""
    calls = list(calls)
    total = sum(count for count, _ in calls)
    with Progress(title, total, "labels") as progress, ThreadPoolExecutor(thread_count(threads)) as pool:
        futures = deque((count, pool.submit(call)) for count, call in calls)
        try:
            while futures:  # without a reference to results already used
                count, future = futures.popleft()
                yield future.result()
                progress.add(count)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def matched_rows(
    instances: Instances, problem: LevelProblem, cluster: int, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted documents of a task, and a mask of those matched to the cluster. A matched document is a
    negative of each label of which it is not a positive.
    """
    if problem.matched is None:
        return np.arange(instances.nr_rows, dtype=np.int32), np.ones(instances.nr_rows, np.bool_)
    matched = problem.matched
    rows = kernel_view(matched.indices[matched.indptr[cluster] : matched.indptr[cluster + 1]], np.int32)
    if problem.covered:
        return rows, np.ones(len(rows), np.bool_)
    Y = problem.labels
    positives = [Y.indices[Y.indptr[label] : Y.indptr[label + 1]] for label in labels]
    documents = np.unique(np.concatenate([rows, *positives])).astype(np.int32)
    return documents, np.isin(documents, rows, assume_unique=True)
