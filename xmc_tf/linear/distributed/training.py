"""Training rankers over ranks: from features, labels and a tree to one file of weights a level."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from xmc_tf.common.memory import give_back_freed
from xmc_tf.common.threads import thread_count
from xmc_tf.common.wire.format import register
from xmc_tf.data import Features
from xmc_tf.data.npz.stored import open_matrix
from xmc_tf.linear.distributed.account import Account
from xmc_tf.linear.distributed.blocks import block_name
from xmc_tf.linear.distributed.joining import join_blocks
from xmc_tf.linear.distributed.plan import SubProblem, cut_into_sub_problems
from xmc_tf.linear.distributed.predicting import predict_over_ranks
from xmc_tf.linear.distributed.solving import solve_over_ranks
from xmc_tf.linear.distributed.stored import is_stored, open_problem, open_tasks, save_problem
from xmc_tf.linear.distributed.work_folder import WorkFolder
from xmc_tf.linear.level import Level
from xmc_tf.linear.levels import Levels
from xmc_tf.linear.tasks import Instances, level_tasks
from xmc_tf.linear.xlinear import XLinear
from xmc_tf.params import LinearLevelPredParams, RankerPredParams, per_level
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.joint_files import remove_from_all_ranks
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks


@register
class _Course(NamedTuple):
    """What all ranks know of the levels; the levels themselves are rank 0's, until they are on disk."""

    runs: list[range]
    waits: list[bool]


def train_over_ranks(
    communicator: Communicator,
    work: WorkFolder,
    X: Features,
    make_levels: Callable[[], Levels],
    *,
    pred_params: RankerPredParams,
    account: Account,
    seed: int = 0,
) -> XLinear:
    """Trains the rankers of every level into the work folder.

    Args:
        communicator: the ranks.
        work: theirs.
        X: the training features, best mapped: every rank has them.
        make_levels: called on rank 0.
        pred_params: what the model uses where prediction is not told otherwise.
        account: receives what this rank does; says how many threads it has.
        seed: of the orders in which the solvers visit the instances.

    Returns:
        The model, its weights mapped; bit for bit what ``train_rankers`` gives.
    """
    levels = run_on_all_ranks(communicator, lambda: make_levels() if communicator.rank == 0 else None)
    course = _Course([], [])
    if levels is not None:
        course = _Course(levels.together(), [levels.waits(t) for t in range(levels.depth)])
    course = communicator.broadcast(course)
    level_pred: Sequence[LinearLevelPredParams] = per_level(pred_params.hlm_args.model_chain, len(course.waits))
    instances = Instances(X)
    model = XLinear([], X.nr_sparse, X.nr_dense)
    for run in course.runs:
        predicted = None
        if course.waits[run.start]:
            predicted = work.file(f"predicted-{run.start}.npz")
            predict_over_ranks(communicator, model, X, predicted, account)
        run_on_all_ranks(communicator, partial(_store, work, levels, run, predicted, instances))
        if run == course.runs[-1]:
            levels = None  # rank 0 alone has held them; from here on all have the same
        _train_run(communicator, work, run, instances, account, seed)
        for t in run:
            problem = open_problem(work.level(t))
            bias = max(problem.params.bias, 0.0)
            model.levels.append(Level(open_matrix(work.weights(t)), problem.clusters, bias, level_pred[t]))
    return model


def _store(work: WorkFolder, levels: Levels | None, run: range, predicted: Path | None, instances: Instances) -> None:
    """Leaves the problems of some levels on disk, on the rank that has the levels."""
    if levels is None:
        return
    for t in run:
        if not is_stored(work.level(t)):
            known = open_matrix(predicted) if predicted is not None and t == run.start else None
            problem = levels.problem(t, known)
            save_problem(work.level(t), problem, level_tasks(instances, problem))


def _train_run(
    communicator: Communicator, work: WorkFolder, run: range, instances: Instances, account: Account, seed: int
) -> None:
    """Trains levels that do not wait for each other; their weights are on disk on return."""
    joined = communicator.broadcast([t for t in run if work.weights(t).exists()])
    if len(joined) == len(run):
        return
    levels = {t: (open_problem(work.level(t)), open_tasks(work.level(t))) for t in run}
    # Cut as if nothing were done yet: what an earlier run has solved is found by the same cuts.
    plan: list[SubProblem] = []
    if communicator.rank == 0:
        plan = cut_into_sub_problems({t: tasks.work for t, (_, tasks) in levels.items()})
    plan = [sub for sub in communicator.broadcast(plan) if sub.level not in joined]
    title = f"rankers, level {run.start + 1}" if len(run) == 1 else f"rankers, levels {run.start + 1} to {run.stop}"
    name = communicator.broadcast(f"{os.getpid()}-{run.start}")
    solve_over_ranks(communicator, work, plan, levels, instances, run=name, title=title, account=account, seed=seed)
    _join(communicator, work, plan, levels, instances, account)


def _join(
    communicator: Communicator,
    work: WorkFolder,
    plan: Sequence[SubProblem],
    levels: Mapping,
    instances: Instances,
    account: Account,
) -> None:
    """Joins the blocks level by level, each rank a part of every level."""
    give_back_freed()  # the solvers' scratch: the files that are now written are as large
    for t in sorted({sub.level for sub in plan}):
        problem, _ = levels[t]
        nr_rows = instances.nr_sparse + instances.dense.shape[1] + (problem.params.bias > 0)
        paths = [work.blocks / block_name(sub, work.key) for sub in plan if sub.level == t]
        with account.busy(1.0):
            join_blocks(communicator, paths, (int(nr_rows), int(problem.clusters.shape[0])), work.weights(t))
        remove_from_all_ranks(communicator, paths[communicator.rank :: communicator.size])


def threads_of_rank(communicator: Communicator, threads: int) -> int:
    """How many threads a rank takes: what it is told, else its share of the host's cores.

    Args:
        communicator: the ranks.
        threads: -1: a share of the cores.
    """
    mine = os.sched_getaffinity(0)
    everyone = communicator.allgather((communicator.host, mine))
    if threads >= 1:
        return threads
    here = [cores for host, cores in everyone if host == communicator.host]
    return max(1, min(thread_count(threads), len(set().union(*here)) // len(here)))
