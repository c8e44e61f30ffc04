"""Training rankers: every cluster of every level is a task, the longest first, over as many threads as there are.

Levels whose negatives come from the labels alone do not wait for one another: their clusters share one queue, so that
a top level with a single cluster does not leave the other threads idle. A level that learns from its parent's mistakes
("man") starts a new queue. A task's result does not depend on the thread, nor on what ran beside it.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import local

import numpy as np
from scipy.sparse import csc_matrix, spmatrix

from xmc_tf.common.kernels import kernel_view
from xmc_tf.common.progress import Progress
from xmc_tf.common.threads import thread_count
from xmc_tf.data import Features, check_pair
from xmc_tf.linear.kernels.dual import HINGE, LOGISTIC, SQUARED_HINGE, solve_dual
from xmc_tf.linear.kernels.emit import Columns
from xmc_tf.linear.kernels.gather import gather
from xmc_tf.linear.kernels.lanes import WIDTH, aligned_zeros
from xmc_tf.linear.kernels.primal import solve_primal
from xmc_tf.linear.modes import trained_levels, whole_chain
from xmc_tf.linear.problems import (
    LevelProblem,
    cost_chain,
    label_chain,
    matched_instances,
    sorted_csc,
    user_matching,
)
from xmc_tf.linear.xlinear import Level, XLinear
from xmc_tf.params import LinearLevelParams, LinearLevelPredParams, RankerParams, RankerPredParams, per_level

_LABELS_PER_TASK = 64  # enough that the gathered instances and the lanes are well used, few enough to share out
_LOSSES = {"L2R_L2LOSS_SVC_DUAL": SQUARED_HINGE, "L2R_L1LOSS_SVC_DUAL": HINGE, "L2R_LR_DUAL": LOGISTIC}
_NOTHING = np.zeros(0, np.float32)


@dataclass(frozen=True)
class _Task:
    """Some sibling labels of one cluster of one level."""

    level: int
    cluster: int
    labels: np.ndarray
    work: float


class _Instances:
    """The training features in the form that kernels read, shared by all threads."""

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

    def slot(self) -> np.ndarray:
        """This thread's zeroed scratch over all sparse features."""
        if not hasattr(self._scratch, "slot"):
            self._scratch.slot = np.zeros(self.nr_sparse, np.int32)
        return self._scratch.slot


def train_rankers(
    X: Features,
    Y: spmatrix,
    chain: Sequence[spmatrix] | None = None,
    *,
    R: spmatrix | None = None,
    params: RankerParams | None = None,
    pred_params: RankerPredParams | None = None,
    user_negatives: Mapping[int, spmatrix] | None = None,
    threads: int = -1,
    seed: int = 0,
) -> XLinear:
    """Trains linear rankers for every node of a label tree.

    Example:
        >>> model = train_rankers(as_features(X), Y, tree.to_chain())
        >>> model.predict(as_features(X_test), only_topk=5)

    Args:
        X: features of the training documents.
        Y: (documents × labels); where it has entries, the label is positive.
        chain: cluster matrices of the tree, the top first; None: one-versus-all, without a tree. Where the first has
            several columns, levels are put above it, as ``params`` say.
        R: relevance of the positives, for cost-sensitive training.
        params: losses, negatives, thresholds, and which part of the tree is trained. A "ranker" predicts from the
            ``codes`` that a matcher gives it.
        pred_params: what the model uses where prediction is not told otherwise.
        user_negatives: see :func:`~xmc_tf.linear.problems.user_matching`.
        threads: how many; -1: one a core. The model does not depend on it.
        seed: of the orders in which the solvers visit the instances.
    """
    check_pair(X, Y)
    params, pred_params = params or RankerParams(), pred_params or RankerPredParams()
    tree = whole_chain(chain, Y.shape[1], params)
    part = trained_levels(params, len(tree))
    labels = label_chain(Y, tree)[part]
    costs = cost_chain(Y, R, tree, params.rel_mode, params.rel_norm)[part]
    users = user_matching(user_negatives, tree)[part]
    chain, depth = tree[part], len(tree[part])
    level_params: Sequence[LinearLevelParams] = per_level(params.hlm_args.model_chain, depth)
    level_pred: Sequence[LinearLevelPredParams] = per_level(pred_params.hlm_args.model_chain, depth)
    schemes: Sequence[str] = per_level(params.hlm_args.neg_mining_chain, depth)
    instances = _Instances(X)
    model = XLinear([], X.nr_sparse, X.nr_dense)
    waiting: list[LevelProblem] = []
    for t in range(depth):
        predicted = None
        if t > 0 and "man" in schemes[t]:
            _train_together(instances, waiting, level_pred, model, threads, seed)
            waiting = []
            predicted = model.predict(X, threads=threads)
        matched = None
        if chain[t].shape[1] > 1:
            # The first level of a ranker has several parents, and no labels of theirs yet.
            teacher = labels[t - 1] if t > 0 else sorted_csc(labels[0] @ chain[0])
            matched = matched_instances(schemes[t], teacher, predicted, users[t])
        covered = matched is None or "tfn" in schemes[t]
        waiting.append(LevelProblem(labels[t], chain[t], matched, costs[t], covered, level_params[t]))
    _train_together(instances, waiting, level_pred, model, threads, seed)
    return model


def _train_together(
    instances: _Instances,
    problems: Sequence[LevelProblem],
    level_pred: Sequence[LinearLevelPredParams],
    model: XLinear,
    threads: int,
    seed: int,
) -> None:
    """Trains levels that do not wait for one another and adds them to the model."""
    first = len(model.levels)
    tasks = [task for t, problem in enumerate(problems) for task in _tasks(instances, problem, t)]
    tasks.sort(key=lambda task: -task.work)
    done: list[list[Columns]] = [[] for _ in problems]
    last = first + len(problems)
    title = f"rankers, level {last}" if last - first == 1 else f"rankers, levels {first + 1} to {last}"
    total = sum(len(task.labels) for task in tasks)
    with Progress(title, total=total, unit="labels") as progress, ThreadPoolExecutor(thread_count(threads)) as pool:
        futures = [(task, pool.submit(_solve, instances, problems[task.level], task, seed)) for task in tasks]
        try:
            for task, future in futures:
                done[task.level].append(future.result())
                progress.add(len(task.labels))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    for t, problem in enumerate(problems):
        bias = max(problem.params.bias, 0.0)
        weights = _assemble(done[t], instances.nr_sparse + instances.dense.shape[1] + (bias > 0), problem)
        done[t] = []
        model.levels.append(Level(weights, problem.clusters, bias, level_pred[first + t]))


def _tasks(instances: _Instances, problem: LevelProblem, level: int) -> list[_Task]:
    """A level's clusters, wide ones cut into pieces; the most frequent labels of each first."""
    frequency = np.diff(problem.labels.indptr)
    indptr, children = problem.clusters.indptr, problem.clusters.indices
    tasks = []
    for cluster in range(problem.clusters.shape[1]):
        labels = children[indptr[cluster] : indptr[cluster + 1]].astype(np.int64)
        # Labels that take many passes start early, so that the lanes empty together.
        labels = labels[np.argsort(-frequency[labels], kind="stable")]
        matched = problem.matched
        rows = instances.nr_rows if matched is None else int(matched.indptr[cluster + 1] - matched.indptr[cluster])
        for begin in range(0, len(labels), _LABELS_PER_TASK):
            part = labels[begin : begin + _LABELS_PER_TASK]
            tasks.append(_Task(level, cluster, part, rows * (1 + -(-len(part) // WIDTH))))
    return tasks


def _solve(instances: _Instances, problem: LevelProblem, task: _Task, seed: int) -> Columns:
    """Gathers one task's instances and solves it."""
    params, Y = problem.params, problem.labels
    rows, in_match = _matched_rows(instances, problem, task)
    primal = params.solver_type == "L2R_L2LOSS_SVC_PRIMAL"
    bias = max(params.bias, 0.0)
    cluster = gather(
        instances.indptr, instances.indices, instances.data, rows, instances.slot(), not primal,
        instances.dense_square, bias,
    )  # fmt: skip
    n, size = len(rows), len(cluster.names) + 1 + instances.dense.shape[1]
    signs = np.zeros((n, WIDTH), np.int8)
    # The kernels take a single row for "no costs", so a single instance with one gets a row more.
    cost = aligned_zeros(1 if problem.costs is None else max(n, 2))
    y_cost = _NOTHING if problem.costs is None else kernel_view(problem.costs.data, np.float32)
    y_indptr, y_indices = kernel_view(Y.indptr, np.int64), kernel_view(Y.indices, np.int32)
    limit = params.nonzeros_limit or 0
    if primal:
        columns, _ = solve_primal(
            cluster, in_match, instances.nr_sparse, instances.dense, task.labels, y_indptr, y_indices, y_cost,
            signs, cost, params.Cp, params.Cn, bias, params.newton_eps, params.max_iter, params.threshold, limit,
        )  # fmt: skip
    else:
        columns, _ = solve_dual(
            cluster, in_match, instances.nr_sparse, instances.dense, task.labels, y_indptr, y_indices, y_cost,
            aligned_zeros(size), aligned_zeros(n), signs, cost, _LOSSES[params.solver_type], params.Cp, params.Cn,
            bias, params.eps, params.max_iter, params.threshold, limit, seed,
        )  # fmt: skip
    used = int(columns.indptr[columns.filled[0]])
    return columns._replace(features=columns.features[:used].copy(), weights=columns.weights[:used].copy())


def _matched_rows(instances: _Instances, problem: LevelProblem, task: _Task) -> tuple[np.ndarray, np.ndarray]:
    """The sorted instances of a task, and which of them are negatives for all its labels."""
    if problem.matched is None:
        return np.arange(instances.nr_rows, dtype=np.int32), np.ones(instances.nr_rows, np.bool_)
    matched = problem.matched
    rows = matched.indices[matched.indptr[task.cluster] : matched.indptr[task.cluster + 1]]
    rows = kernel_view(rows, np.int32)
    if problem.covered:
        return rows, np.ones(len(rows), np.bool_)
    Y = problem.labels
    positives = [Y.indices[Y.indptr[label] : Y.indptr[label + 1]] for label in task.labels]
    everyone = np.unique(np.concatenate([rows, *positives])).astype(np.int32)
    return everyone, np.isin(everyone, rows, assume_unique=True)


def _assemble(parts: list[Columns], nr_rows: int, problem: LevelProblem) -> csc_matrix:
    """One level's W from its tasks' columns."""
    nr_labels = problem.clusters.shape[0]
    sizes = np.zeros(nr_labels + 1, np.int64)
    for part in parts:
        sizes[part.labels + 1] = np.diff(part.indptr)
    indptr = np.cumsum(sizes)
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    while parts:
        part = parts.pop()  # freed as it is copied
        for j, label in enumerate(part.labels):
            begin, end = part.indptr[j], part.indptr[j + 1]
            at = indptr[label]
            indices[at : at + end - begin] = part.features[begin:end]
            data[at : at + end - begin] = part.weights[begin:end]
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    weights = csc_matrix((data, indices, indptr), shape=(nr_rows, nr_labels))
    weights.has_sorted_indices = True
    return weights
