"""Training rankers over ranks: from features, labels and a tree to one file of weights per level."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.common.memory import release_freed_memory
from xmc_tf.common.threads import thread_count, usable_cores
from xmc_tf.common.wire import register
from xmc_tf.data import Features, save_matrix
from xmc_tf.data.matrices import open_matrix
from xmc_tf.params import LinearLevelPredParams, RankerPredParams, per_level
from xmc_tf.rankers.distributed.blocks import block_name
from xmc_tf.rankers.distributed.joining import join_blocks
from xmc_tf.rankers.distributed.plan import SubProblem, cut_into_sub_problems
from xmc_tf.rankers.distributed.solving import SolvingJob, solve_over_ranks
from xmc_tf.rankers.distributed.work_folder import WorkFolder, is_stored, open_problem, open_tasks, save_problem
from xmc_tf.rankers.fit import levels_title
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.levels import Levels
from xmc_tf.rankers.tasks import Instances, level_tasks
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.joint_files import remove_from_all_ranks
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import balanced
from xmc_tf.ranks.stacking import stack_rows

DOCUMENTS_A_PIECE = 100_000


def predict_over_ranks(communicator: Communicator, model: XLinear, X: Features, target: Path, threads: int) -> None:
    """Write the result of ``model.predict(X)`` unless the file exists; on return, all ranks see it."""
    if communicator.broadcast(target.exists()):
        return
    entries = np.ones(X.nr_rows) if X.sparse is None else np.diff(X.sparse.indptr) + 1 + X.nr_dense
    first, last = balanced(entries, communicator.size).range(communicator.rank)
    bounds = [*range(first, last, DOCUMENTS_A_PIECE), last] if first < last else [first, last]
    # Documents are predicted one by one, so the result does not depend on the cuts.
    pieces = [target.with_name(f"{target.stem}-{a}-{b}.npz") for a, b in pairwise(bounds)]

    def predict() -> None:
        for piece, (a, b) in zip(pieces, pairwise(bounds), strict=True):
            if not piece.exists():
                save_matrix(piece, model.predict(X.rows(slice(a, b)), threads=threads))

    run_on_all_ranks(communicator, predict)
    stack_rows(communicator, pieces, target)
    remove_from_all_ranks(communicator, pieces)


@register
class _Tree(NamedTuple):
    """The levels of a tree, which all ranks know; the work folder numbers the levels of all trees in sequence."""

    first: int  # number of its first level
    runs: list[range]  # its levels, as runs that can be trained at the same time
    waits: list[bool]  # whether each level learns from mistakes of the levels above


def train_trees_over_ranks(
    communicator: Communicator,
    work: WorkFolder,
    X: Features,
    make_levels: Callable[[], Sequence[Levels]],
    *,
    pred_params: Sequence[RankerPredParams],
    threads: int,
    seed: int = 0,
) -> list[XLinear]:
    """Train the rankers of several trees into the work folder, with one queue for the sub-problems of all trees.

    The weights of the models are mapped and equal those of ``train_trees`` bit for bit. ``make_levels`` is called on
    rank 0.
    """
    levels = run_on_all_ranks(communicator, lambda: list(make_levels()) if communicator.rank == 0 else [])
    trees: list[_Tree] = []
    for one in levels:
        first = sum(len(tree.waits) for tree in trees)
        trees.append(_Tree(first, one.runs(), [one.waits(t) for t in range(one.depth)]))
    trees = communicator.broadcast(trees)
    level_preds: list[Sequence[LinearLevelPredParams]] = [
        per_level(one.hlm_args.model_chain, len(tree.waits)) for one, tree in zip(pred_params, trees, strict=True)
    ]
    instances = Instances(X)
    models = [XLinear([], X.nr_sparse, X.nr_dense) for _ in trees]
    rounds = max(len(tree.runs) for tree in trees)
    for number in range(rounds):
        there = [i for i, tree in enumerate(trees) if number < len(tree.runs)]
        for i in there:
            tree, run = trees[i], trees[i].runs[number]
            predicted = None
            if tree.waits[run.start]:
                predicted = work.file(f"predicted-{tree.first + run.start}.npz")
                predict_over_ranks(communicator, models[i], X, predicted, threads)
            own = levels[i] if levels else None
            run_on_all_ranks(communicator, partial(_store, work, own, run, tree.first, predicted, instances))
        if number == rounds - 1:
            levels = []  # free rank 0's copy: from here on, all ranks map the problems from disk
        title = levels_title([tree.runs[number] if number < len(tree.runs) else None for tree in trees])
        numbers = [trees[i].first + t for i in there for t in trees[i].runs[number]]
        _train_levels(communicator, work, numbers, title, instances, threads, seed)
        for i in there:
            for t in trees[i].runs[number]:
                problem = open_problem(work.level(trees[i].first + t))
                weights = open_matrix(work.weights(trees[i].first + t))
                models[i].levels.append(Level(weights, problem.clusters, problem.bias, level_preds[i][t]))
    return models


def _store(
    work: WorkFolder, levels: Levels | None, run: range, first: int, predicted: Path | None, instances: Instances
) -> None:
    """Save the problems of some levels of a tree (numbered from ``first``) on the rank that has them."""
    if levels is None:
        return
    for t in run:
        if not is_stored(work.level(first + t)):
            known = open_matrix(predicted) if predicted is not None and t == run.start else None
            problem = levels.problem(t, known)
            save_problem(work.level(first + t), problem, level_tasks(instances, problem))


def _train_levels(
    communicator: Communicator,
    work: WorkFolder,
    numbers: Sequence[int],
    title: str,
    instances: Instances,
    threads: int,
    seed: int,
) -> None:
    """Train levels that do not wait for each other; on return, their weights are on disk."""
    joined = communicator.broadcast([t for t in numbers if work.weights(t).exists()])
    if len(joined) == len(numbers):
        return
    levels = {t: (open_problem(work.level(t)), open_tasks(work.level(t))) for t in numbers}
    # The cuts ignore what is already solved, so that the blocks of an earlier run fit.
    plan: list[SubProblem] = []
    if communicator.rank == 0:
        plan = cut_into_sub_problems({t: tasks.work for t, (_, tasks) in levels.items()})
    plan = [sub for sub in communicator.broadcast(plan) if sub.level not in joined]
    name = communicator.broadcast(f"{os.getpid()}-{numbers[0]}")
    job = SolvingJob(plan, levels, instances, seed)
    solve_over_ranks(communicator, work, job, run=name, title=title, threads=threads)
    _join(communicator, work, job)


def _join(communicator: Communicator, work: WorkFolder, job: SolvingJob) -> None:
    """Join the blocks level by level; each rank writes a part of every level."""
    release_freed_memory()  # the solvers' scratch memory: the files to write are as large
    for t in sorted({sub.level for sub in job.plan}):
        paths = [work.blocks / block_name(sub, work.key) for sub in job.plan if sub.level == t]
        join_blocks(communicator, paths, job.instances.weights_shape(job.levels[t][0]), work.weights(t))
        remove_from_all_ranks(communicator, paths[communicator.rank :: communicator.size])


def threads_of_rank(communicator: Communicator, threads: int) -> int:
    """Return the number of threads of a rank; -1: its share of the host's cores. Collective."""
    own = usable_cores()
    all_ranks = communicator.allgather((communicator.host, own))
    if threads >= 1:
        return threads
    here = [cores for host, cores in all_ranks if host == communicator.host]
    return max(1, min(thread_count(threads), len(set().union(*here)) // len(here)))
