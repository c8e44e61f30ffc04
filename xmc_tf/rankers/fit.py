"""Train rankers in one process. The clusters of all levels are divided into tasks, which a pool of threads solves.
Levels that do not depend on each other share one queue with the longest task first, so that a level with a single
cluster leaves no thread idle.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_matrix, spmatrix

from xmc_tf.common.memory import release_freed_memory
from xmc_tf.common.progress import Progress
from xmc_tf.common.threads import thread_count
from xmc_tf.data import Features, check_pair
from xmc_tf.params import LinearLevelPredParams, RankerParams, RankerPredParams, per_level
from xmc_tf.rankers.disk import write_parameters
from xmc_tf.rankers.kernels.emit import WeightColumns, join_columns, matrix_of_columns
from xmc_tf.rankers.kernels.layout import SMALL_SHARE, fill, measure
from xmc_tf.rankers.layout.stored import ChunkTable, SearchWriter
from xmc_tf.rankers.level import Level, UnreadWeights
from xmc_tf.rankers.problems import LevelProblem, RankerData
from xmc_tf.rankers.tasks import Instances, LevelTasks, level_tasks, solve_in_threads, solve_task, task_labels
from xmc_tf.rankers.xlinear import XLinear


def train_rankers(
    X: Features, Y: spmatrix, chain: Sequence[spmatrix] | None = None, *, R: spmatrix | None = None,
    params: RankerParams | None = None, pred_params: RankerPredParams | None = None,
    user_negatives: Mapping[int, spmatrix] | None = None, threads: int = -1, seed: int = 0,
) -> XLinear:  # fmt: skip
    """Train linear rankers for every node of a label tree; see :func:`train_trees`."""
    return train_trees(
        X, Y, [chain], R=R, params=params, pred_params=None if pred_params is None else [pred_params],
        user_negatives=user_negatives, threads=threads, seed=seed,
    )[0]  # fmt: skip


def train_trees(
    X: Features, Y: spmatrix, chains: Sequence[Sequence[spmatrix] | None], *, R: spmatrix | None = None,
    params: RankerParams | None = None, pred_params: Sequence[RankerPredParams] | None = None,
    user_negatives: Mapping[int, spmatrix] | None = None, threads: int = -1, seed: int = 0,
) -> list[XLinear]:  # fmt: skip
    """Train linear rankers for several trees over the same labels, with one queue of tasks for all trees. A chain
    contains the cluster matrices of a tree, the top level first; None means one-versus-all. Each model depends neither
    on ``threads`` nor on the other trees.
    """
    check_pair(X, Y)
    instances = Instances(X, params or RankerParams())
    trees = [instances.levels(Y, chain, R, user_negatives) for chain in chains]
    preds = pred_params or [RankerPredParams()] * len(trees)
    level_preds: list[Sequence[LinearLevelPredParams]] = [
        per_level(one.hlm_args.model_chain, levels.depth) for one, levels in zip(preds, trees, strict=True)
    ]
    models = [XLinear([], X.nr_sparse, X.nr_dense) for _ in trees]
    release_freed_memory()  # of earlier stages, which made the trees and held out documents
    for runs in zip_longest(*(levels.runs() for levels in trees)):
        problems: list[LevelProblem] = []
        tree_of: list[int] = []
        for tree, (levels, run) in enumerate(zip(trees, runs, strict=True)):
            if run is not None:
                predicted = models[tree].predict(X, threads=threads) if levels.waits(run.start) else None
                problems += [levels.problem(t, predicted) for t in run]
                tree_of += [tree] * len(run)
        solved = _solve(instances, problems, levels_title(runs), threads, seed)
        for tree, problem, weights in zip(tree_of, problems, solved, strict=True):
            own = models[tree].levels
            own.append(Level(weights, problem.clusters, problem.bias, level_preds[tree][len(own)]))
    return models


def levels_title(runs: Sequence[range | None]) -> str:
    """Return the title of a progress bar for the levels of each tree that are trained at the same time."""
    there = [run for run in runs if run is not None]
    first, last = min(run.start for run in there) + 1, max(run.stop for run in there)
    of = f" of {len(runs)} trees" if len(runs) > 1 else ""
    return f"rankers{of}, level {last}" if first == last else f"rankers{of}, levels {first} to {last}"


def _solve(
    instances: Instances, problems: Sequence[LevelProblem], title: str, threads: int, seed: int
) -> Iterator[csc_matrix]:
    """Solve levels that do not depend on each other, and yield the weights of each level."""
    plans = [level_tasks(instances, problem) for problem in problems]
    tasks = [(t, i) for t, plan in enumerate(plans) for i in range(len(plan.work))]
    tasks.sort(key=lambda task: -plans[task[0]].work[task[1]])
    done: list[list[WeightColumns]] = [[] for _ in problems]

    def solve(t: int, i: int) -> WeightColumns:
        labels = task_labels(problems[t], plans[t], i)
        return solve_task(instances, problems[t], int(plans[t].cluster[i]), labels, seed)

    calls = [(int(plans[t].end[i] - plans[t].begin[i]), partial(solve, t, i)) for t, i in tasks]
    for (t, _), columns in zip(tasks, solve_in_threads(calls, title, threads), strict=True):
        done[t].append(columns)
    for t, problem in enumerate(problems):
        yield matrix_of_columns(done[t], instances.weights_shape(problem))
        release_freed_memory()  # the parts of this level, beside its matrix


_CLUSTERS = 16  # maximum number of clusters that one thread solves and arranges at a time
WAITING_WORDS = 1 << 28  # of solved clusters that wait for one before them, about 1 GB


class _Piece(NamedTuple):
    """Neighbouring clusters of a level in the search layout."""

    table: ChunkTable
    words: np.ndarray  # of the chunks
    nr_labels: int
    nr_weights: int


def train_streamed(
    data: RankerData, folders: Sequence[Path], *, params: RankerParams | None = None,
    pred_params: Sequence[RankerPredParams] | None = None, threads: int = -1, seed: int = 0,
) -> list[XLinear]:  # fmt: skip
    """Train rankers whose weights do not fit in memory; the result is that of `train_trees`, bit for bit. Each cluster
    is written to the search layout as soon as it is solved, in a new folder for each tree.
    """
    X = data.X
    check_pair(X, data.Y)
    instances = Instances(X, params or RankerParams())
    release_freed_memory()
    pred_params = pred_params or [RankerPredParams()] * len(folders)
    for tree, folder, own in zip(data.trees, folders, pred_params, strict=True):
        levels = instances.levels(data.Y, tree.to_chain(), data.R, data.user_negatives)
        preds = per_level(own.hlm_args.model_chain, levels.depth)
        made: list[Level] = []
        with SearchWriter(folder) as writer:
            for run in levels.runs():
                predicted = None
                if levels.waits(run.start):
                    sizes = X.nr_sparse, X.nr_dense
                    above = XLinear(made, *sizes, writer.chunks(made), (len(made), *sizes))
                    predicted = above.predict(X, threads=threads)
                problems = [levels.problem(t, predicted) for t in run]
                counts = _write_solved(writer, instances, problems, levels_title([run]), threads, seed)
                for t, problem, count in zip(run, problems, counts, strict=True):
                    weights = UnreadWeights(instances.weights_shape(problem), count, _unread)
                    made.append(Level(weights, problem.clusters, problem.bias, preds[t]))
            write_parameters(made, folder)
            writer.finish(made, X.nr_dense)
        release_freed_memory()
    return [XLinear.load(folder, X.nr_dense) for folder in folders]


def _unread() -> csc_matrix:
    raise AssertionError("the rankers are still being trained")


def _write_solved(
    writer: SearchWriter, instances: Instances, problems: Sequence[LevelProblem], title: str, threads: int, seed: int
) -> list[int]:
    """Solve and write levels that do not depend on each other; return the number of weights of each level."""
    work: list[tuple[int, Callable[[], _Piece]]] = []
    for number, problem in enumerate(problems):
        tasks, nr_clusters = level_tasks(instances, problem), int(problem.clusters.shape[1])
        step = max(1, min(_CLUSTERS, nr_clusters // (8 * thread_count(threads))))
        bounds = [*range(0, nr_clusters, step), nr_clusters]
        work += [(number, partial(_piece, instances, problem, tasks, a, b, seed)) for a, b in pairwise(bounds)]
    counts = [0] * len(problems)
    total = sum(int(problem.clusters.nnz) for problem in problems)
    with Progress(title, total=total, unit="labels") as progress, ThreadPoolExecutor(thread_count(threads)) as pool:
        for number, piece in _in_order(pool, work, 2 * thread_count(threads)):
            writer.add(piece.table, piece.words)
            counts[number] += piece.nr_weights
            progress.add(piece.nr_labels)
    return counts


def _in_order(
    pool: ThreadPoolExecutor, work: Sequence[tuple[int, Callable[[], _Piece]]], ahead: int
) -> Iterator[tuple[int, _Piece]]:
    """Run calls in the pool and yield their results in order. At most ``ahead`` calls run at a time, and no new call
    starts while too many results wait for an earlier one.
    """
    rest, queue = iter(work), deque[tuple[int, Future[_Piece]]]()
    try:
        while True:
            running = [future for _, future in queue if not future.done()]
            waiting = sum(len(future.result().words) for _, future in queue if future.done())
            while len(running) < ahead and waiting < WAITING_WORDS and (one := next(rest, None)) is not None:
                queue.append((one[0], pool.submit(one[1])))
                running.append(queue[-1][1])
            if not queue:
                return
            if queue[0][1].done():
                number, future = queue.popleft()
                yield number, future.result()
            else:
                wait(running, return_when=FIRST_COMPLETED)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _piece(instances: Instances, problem: LevelProblem, tasks: LevelTasks, first: int, last: int, seed: int) -> _Piece:
    """Solve the clusters ``[first, last)`` of a level, and arrange their weights for search."""
    solved = [
        solve_task(instances, problem, int(tasks.cluster[i]), task_labels(problem, tasks, i), seed)
        for i in range(*np.searchsorted(tasks.cluster, (first, last)))
    ]
    children = problem.clusters.indptr[first : last + 1].astype(np.int64)
    labels = problem.clusters.indices[children[0] : children[-1]]
    order = np.argsort(labels)
    places = [order[np.searchsorted(labels, part.labels, sorter=order)] for part in solved]
    weights = join_columns([part._replace(labels=at) for part, at in zip(solved, places, strict=True)], len(labels))
    sizes = instances.nr_sparse, instances.dense.shape[1], SMALL_SHARE
    count, indptr, columns = last - first, children - children[0], np.arange(len(labels), dtype=np.int32)
    table = ChunkTable(np.zeros(count, np.int64), np.zeros(count, np.int64))
    measure(*weights[:2], indptr, columns, *sizes, 0, count, table.rows, table.lengths)
    start = np.concatenate([[0], np.cumsum(table.lengths)])
    words = np.zeros(start[-1], np.int32)
    views = words, words.view(np.float32), words.view(np.uint8)
    fill(*weights, indptr, columns, *sizes, 0, count, problem.bias, start, *views)
    return _Piece(table, words, len(labels), len(weights[1]))
