"""Grow the rankers of a tree: only the columns that new documents or labels affect are computed. `solved_again` solves
the changed clusters on all their documents; the result is that of training from scratch, bit for bit. `adjusted` only
adjusts weights to the new documents (see ``kernels``) and solves new labels, so its running time depends mostly on the
number of new documents.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.rankers.incremental.kernels import adjust_labels
from xmc_tf.rankers.kernels.emit import WeightColumns, matrix_of_columns
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.problems import LevelProblem, Levels
from xmc_tf.rankers.query_arrays import sparse_arrays
from xmc_tf.rankers.tasks import (
    Instances,
    level_tasks,
    matched_rows,
    solve_in_threads,
    solve_task,
    solver_settings,
    task_labels,
)
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.tree import LabelTree


def place_labels(tree: LabelTree, X: csr_matrix, Y: csr_matrix, embeddings: csr_matrix) -> LabelTree:
    """Return a tree with new labels. Each is placed in the cluster whose documents are the most similar on average;
    labels with empty embeddings are distributed evenly.
    """
    leaves, count = tree.splits[-1], embeddings.shape[0]
    cluster_of = np.repeat(np.arange(leaves.size - 1), np.diff(leaves))
    members = csc_matrix(
        (np.ones(tree.nr_labels, np.float32), tree.labels, leaves), shape=(tree.nr_labels, leaves.size - 1)
    )
    matched = csr_matrix(Y @ members)
    matched.data[:] = 1.0
    documents = np.maximum(np.bincount(matched.indices, minlength=leaves.size - 1), 1)
    similarity = np.asarray((matched.T @ (X @ embeddings.T.tocsc())).todense()).T / documents
    chosen = similarity.argmax(axis=1)
    empty = np.diff(embeddings.indptr) == 0
    chosen[empty] = np.arange(int(empty.sum())) % (leaves.size - 1)
    labels = np.concatenate([tree.labels, np.arange(tree.nr_labels, tree.nr_labels + count)])
    return regrouped(tree, labels, np.concatenate([cluster_of, chosen]))


def regrouped(tree: LabelTree, labels: np.ndarray, clusters: np.ndarray) -> LabelTree:
    """Return a tree with the same clusters but other labels; ``clusters`` is the leaf cluster of each label."""
    order = np.lexsort((labels, clusters))
    splits = np.searchsorted(clusters[order], np.arange(tree.splits[-1].size))
    return LabelTree((*tree.splits[:-1], splits), labels[order], tree.node_order)


_ADJUSTABLE = {"L2R_L2LOSS_SVC_DUAL": True, "L2R_L2LOSS_SVC_PRIMAL": True, "L2R_L1LOSS_SVC_DUAL": False}


@dataclass(frozen=True, eq=False)
class GrownRankers:
    """The trained rankers of one tree, the extended training data, and the clusters that have changed."""

    model: XLinear
    levels: Levels  # the training problems with all documents and labels; new labels are the last ones
    columns: Sequence[np.ndarray]  # for each level, the current column of each node; -1: it is new
    changed: Sequence[np.ndarray]  # for each level, a mask of the clusters that changed
    nr_earlier: int  # the documents that ``model`` was trained on, which are the first ones


def with_documents_from(levels: Levels, first: int) -> list[np.ndarray]:
    """Return, for each level, a mask of the clusters that have documents from row ``first`` onwards."""
    masks = []
    for t in range(levels.depth):
        problem = levels.problem(t)
        mask = np.zeros(problem.clusters.shape[1], bool)
        if problem.matched is None:
            mask[:] = problem.labels.shape[0] > first
        else:
            cluster = np.repeat(np.arange(len(mask)), np.diff(problem.matched.indptr))
            mask[cluster[problem.matched.indices >= first]] = True
        masks.append(mask)
    return masks


def changed_clusters(before: Levels, after: Levels, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return, for each level, a mask of the clusters whose documents or positives have changed. ``columns`` has the
    earlier column of each node, or -1 for new nodes.
    """
    masks = []
    for t in range(after.depth):
        old, new = before.problem(t), after.problem(t)
        known = columns[t] >= 0
        nodes = np.ones(len(known), bool)
        nodes[known] = _differ(csc_matrix(old.labels[:, columns[t][known]]), csc_matrix(new.labels[:, known]))
        mask = np.asarray(new.clusters.T @ nodes.astype(np.float32)).ravel() > 0
        # A cluster's documents change only if a node's documents do, or if a label has left.
        mask |= np.diff(old.clusters.indptr) != np.diff(new.clusters.indptr)
        masks.append(mask)
    return masks


def _differ(one: csc_matrix, other: csc_matrix) -> np.ndarray:
    """Return a mask of columns with entries in different rows; both matrices are sorted and have no zeros."""
    different = np.diff(one.indptr) != np.diff(other.indptr)
    for j in np.flatnonzero(~different):
        rows, others = (m.indices[m.indptr[j] : m.indptr[j + 1]] for m in (one, other))
        different[j] = not np.array_equal(rows, others)
    return different


def solved_again(
    growths: Sequence[GrownRankers], instances: Instances, threads: int = -1, seed: int = 0
) -> list[XLinear]:
    """Solve all changed clusters on all their documents, and return the rankers of each tree."""

    def solve(_: GrownRankers, problem: LevelProblem, __: int, cluster: int, labels: np.ndarray) -> list[WeightColumns]:
        return [solve_task(instances, problem, cluster, labels, seed)]

    return _grown(growths, instances, solve, threads)


def adjusted(growths: Sequence[GrownRankers], instances: Instances, threads: int = -1, seed: int = 0) -> list[XLinear]:
    """Adjust the rankers of several trees to new documents; raise InputError if the loss is logistic."""
    for growth in growths:
        for params in growth.levels.params:
            if params.solver_type not in _ADJUSTABLE:
                raise InputError(
                    "these rankers cannot be adjusted to further documents",
                    expected=f"a solver among {', '.join(_ADJUSTABLE)}", received=params.solver_type,
                    fix="solve their clusters again (--exact; in Python: exact=True)",
                )  # fmt: skip

    def adjust(
        growth: GrownRankers, problem: LevelProblem, t: int, cluster: int, labels: np.ndarray
    ) -> list[WeightColumns]:
        columns = growth.columns[t][labels]
        known, new = labels[columns >= 0], labels[columns < 0]
        found = [solve_task(instances, problem, cluster, new, seed)] if len(new) else []
        return [_adjusted(growth, instances, problem, t, cluster, known), *found] if len(known) else found

    return _grown(growths, instances, adjust, threads)


def _adjusted(
    growth: GrownRankers, instances: Instances, problem: LevelProblem, t: int, cluster: int, labels: np.ndarray
) -> WeightColumns:
    weights, params = growth.model.levels[t].weights, problem.params
    rows, _ = matched_rows(instances, problem, cluster, labels)
    split = np.searchsorted(rows, growth.nr_earlier)
    settings = solver_settings(params)._replace(eps=params.eps)
    # The known labels of a level keep their numbers: new ones come last.
    return adjust_labels(
        instances.indptr, instances.indices, instances.data, rows[:split], rows[split:], labels, problem.positives,
        *sparse_arrays(weights), instances.slot(), settings, _ADJUSTABLE[params.solver_type],
    )  # fmt: skip


_Task = tuple[int, int, int, int, np.ndarray]  # work, tree, level, cluster, labels
_Solve = Callable[[GrownRankers, LevelProblem, int, int, np.ndarray], list[WeightColumns]]


def _grown(growths: Sequence[GrownRankers], instances: Instances, solve: _Solve, threads: int) -> list[XLinear]:
    """Return the rankers of each tree. ``solve`` computes the columns of changed clusters; other columns are kept."""
    problems = [[growth.levels.problem(t) for t in range(growth.levels.depth)] for growth in growths]
    parts: list[list[list[WeightColumns]]] = [[[] for _ in levels] for levels in problems]
    tasks: list[_Task] = []
    for g, growth in enumerate(growths):
        for t, problem in enumerate(problems[g]):
            plan = level_tasks(instances, problem)
            for i in np.flatnonzero(growth.changed[t][plan.cluster]):
                tasks.append((int(plan.work[i]), g, t, int(plan.cluster[i]), task_labels(problem, plan, int(i))))
    tasks.sort(key=lambda task: -task[0])
    calls = [
        (len(labels), partial(solve, growths[g], problems[g][t], t, cluster, labels))
        for _, g, t, cluster, labels in tasks
    ]
    solved = solve_in_threads(calls, "rankers that change", threads)
    for (_, g, t, *_), columns in zip(tasks, solved, strict=True):
        parts[g][t] += columns
    models = []
    for growth, own, new in zip(growths, problems, parts, strict=True):
        levels = []
        for level, present, problem, part in zip(growth.model.levels, growth.columns, own, new, strict=True):
            weights = _weights(level.weights, present, part)
            levels.append(Level(weights, problem.clusters, level.bias, level.pred_params))
        models.append(XLinear(levels, growth.model.nr_sparse, growth.model.nr_dense, pecos=growth.model.pecos))
    return models


def _weights(old: csc_matrix, columns: np.ndarray, parts: Sequence[WeightColumns]) -> csc_matrix:
    """Return the weights of a level: the columns in ``parts``, and the columns of ``old`` for all other nodes."""
    node_of = np.full(old.shape[1], -1, np.int64)
    node_of[columns[columns >= 0]] = np.flatnonzero(columns >= 0)
    for part in parts:
        there = columns[part.labels[: int(part.filled[0])]]
        node_of[there[there >= 0]] = -1
    kept = WeightColumns(node_of, *sparse_arrays(old), np.array([len(node_of)]))
    return matrix_of_columns([kept, *parts], (old.shape[0], len(columns)))
