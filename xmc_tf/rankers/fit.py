"""Training rankers in one process: every cluster of every level is a task, solved by a pool of threads. Levels that do
not wait for each other share one queue, the longest task first, so that a level with a single cluster leaves none idle.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest

from scipy.sparse import csc_matrix, spmatrix

from xmc_tf.common.memory import release_freed_memory
from xmc_tf.data import Features, check_pair
from xmc_tf.params import LinearLevelPredParams, RankerParams, RankerPredParams, per_level
from xmc_tf.rankers.kernels.emit import WeightColumns, matrix_of_columns
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.levels import Levels
from xmc_tf.rankers.problems import LevelProblem
from xmc_tf.rankers.tasks import Instances, level_tasks, solve_in_threads, solve_task, task_labels
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
    """Train linear rankers for several trees over the same labels, with one queue for all clusters. A chain has the
    cluster matrices of a tree, the top first; None is one-versus-all. The models do not depend on ``threads`` or other
    trees.
    """
    check_pair(X, Y)
    params = params or RankerParams()
    trees = [Levels(Y, chain, R, params, user_negatives) for chain in chains]
    preds = pred_params or [RankerPredParams()] * len(trees)
    level_preds: list[Sequence[LinearLevelPredParams]] = [
        per_level(one.hlm_args.model_chain, levels.depth) for one, levels in zip(preds, trees, strict=True)
    ]
    instances = Instances(X)
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
    """Yield the weights of levels that do not wait for each other."""
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
