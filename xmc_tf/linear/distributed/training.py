"""Training rankers over ranks: from features, labels and a tree to one file of weights per level."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from xmc_tf.common.memory import release_freed_memory
from xmc_tf.common.threads import thread_count
from xmc_tf.common.wire.format import register
from xmc_tf.data import Features
from xmc_tf.data.npz.stored import open_matrix
from xmc_tf.linear.distributed.account import Account
from xmc_tf.linear.distributed.blocks import block_name
from xmc_tf.linear.distributed.joining import join_blocks
from xmc_tf.linear.distributed.plan import SubProblem, cut_into_sub_problems
from xmc_tf.linear.distributed.predicting import predict_over_ranks
from xmc_tf.linear.distributed.solving import SolvingJob, solve_over_ranks
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
class _Order(NamedTuple):
    """The order of the levels, which all ranks know; the levels themselves are rank 0's until they are on disk."""

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
    """Train the rankers of every level into the work folder.

    Args:
        communicator: the ranks.
        work: the ranks' work folder.
        X: the training features; best memory-mapped, because every rank has them.
        make_levels: returns the levels; called on rank 0.
        pred_params: the model's default prediction parameters.
        account: records the work of this rank; contains its number of threads.
        seed: seed of the orders in which the solvers visit the documents.

    Returns:
        The model, its weights mapped; bit for bit the result of ``train_rankers``.
    """
    levels = run_on_all_ranks(communicator, lambda: make_levels() if communicator.rank == 0 else None)
    order = _Order([], [])
    if levels is not None:
        order = _Order(levels.runs(), [levels.waits(t) for t in range(levels.depth)])
    order = communicator.broadcast(order)
    level_pred: Sequence[LinearLevelPredParams] = per_level(pred_params.hlm_args.model_chain, len(order.waits))
    instances = Instances(X)
    model = XLinear([], X.nr_sparse, X.nr_dense)
    for run in order.runs:
        predicted = None
        if order.waits[run.start]:
            predicted = work.file(f"predicted-{run.start}.npz")
            predict_over_ranks(communicator, model, X, predicted, account)
        run_on_all_ranks(communicator, partial(_store, work, levels, run, predicted, instances))
        if run == order.runs[-1]:
            levels = None  # free rank 0's copy: from here on, all ranks map the problems from disk
        _train_run(communicator, work, run, instances, account, seed)
        for t in run:
            problem = open_problem(work.level(t))
            bias = max(problem.params.bias, 0.0)
            model.levels.append(Level(open_matrix(work.weights(t)), problem.clusters, bias, level_pred[t]))
    return model


def _store(work: WorkFolder, levels: Levels | None, run: range, predicted: Path | None, instances: Instances) -> None:
    """Save the problems of some levels, on the rank that has the levels."""
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
    """Train levels that do not wait for each other; on return, their weights are on disk."""
    joined = communicator.broadcast([t for t in run if work.weights(t).exists()])
    if len(joined) == len(run):
        return
    levels = {t: (open_problem(work.level(t)), open_tasks(work.level(t))) for t in run}
    # The cuts ignore what is solved already, so that the blocks of an earlier run fit.
    plan: list[SubProblem] = []
    if communicator.rank == 0:
        plan = cut_into_sub_problems({t: tasks.work for t, (_, tasks) in levels.items()})
    plan = [sub for sub in communicator.broadcast(plan) if sub.level not in joined]
    title = f"rankers, level {run.start + 1}" if len(run) == 1 else f"rankers, levels {run.start + 1} to {run.stop}"
    name = communicator.broadcast(f"{os.getpid()}-{run.start}")
    job = SolvingJob(plan, levels, instances, seed)
    solve_over_ranks(communicator, work, job, run=name, title=title, account=account)
    _join(communicator, work, job, account)


def _join(communicator: Communicator, work: WorkFolder, job: SolvingJob, account: Account) -> None:
    """Join the blocks level by level; each rank writes a part of every level."""
    release_freed_memory()  # the solvers' scratch memory: the files that are written now are as large
    instances = job.instances
    for t in sorted({sub.level for sub in job.plan}):
        problem, _ = job.levels[t]
        nr_rows = instances.nr_sparse + instances.dense.shape[1] + (problem.params.bias > 0)
        paths = [work.blocks / block_name(sub, work.key) for sub in job.plan if sub.level == t]
        with account.busy(1.0):
            join_blocks(communicator, paths, (int(nr_rows), int(problem.clusters.shape[0])), work.weights(t))
        remove_from_all_ranks(communicator, paths[communicator.rank :: communicator.size])


def threads_of_rank(communicator: Communicator, threads: int) -> int:
    """Return the number of threads of a rank.

    Args:
        communicator: the ranks.
        threads: the number to use; -1: the rank's share of the host's cores.
    """
    own = os.sched_getaffinity(0)
    all_ranks = communicator.allgather((communicator.host, own))
    if threads >= 1:
        return threads
    here = [cores for host, cores in all_ranks if host == communicator.host]
    return max(1, min(thread_count(threads), len(set().union(*here)) // len(here)))
