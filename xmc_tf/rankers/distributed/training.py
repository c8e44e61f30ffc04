"""Distributed training of rankers, from features, labels and a tree to one weight file per level."""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.common.memory import release_freed_memory
from xmc_tf.common.serialization import register
from xmc_tf.common.threads import thread_count, usable_cores
from xmc_tf.data import Features, check_pair
from xmc_tf.params import LinearLevelPredParams, RankerParams, RankerPredParams, per_level
from xmc_tf.rankers.distributed.solving import (
    SubProblem,
    block_name,
    cut_into_sub_problems,
    join_blocks,
    solve_over_ranks,
)
from xmc_tf.rankers.distributed.work_folder import WorkFolder, open_work_folder
from xmc_tf.rankers.fit import levels_title
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.problems import Levels, RankerData
from xmc_tf.rankers.tasks import Instances, level_tasks
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import balanced
from xmc_tf.ranks.stacking import remove_from_all_ranks, stack_rows
from xmc_tf.store.arrays import open_sparse, save_sparse
from xmc_tf.store.models import RANKERS

_LOG = logging.getLogger(__name__)
DOCUMENTS_A_PIECE = 100_000


def predict_over_ranks(communicator: Communicator, model: XLinear, X: Features, target: Path, threads: int) -> None:
    """Write the result of ``model.predict(X)`` unless the file exists. On return, all ranks see the file."""
    if communicator.broadcast(target.exists()):
        return
    entries = np.ones(X.nr_rows) if X.sparse is None else np.diff(X.sparse.indptr) + 1 + X.nr_dense
    first, last = balanced(entries, communicator.size).range(communicator.rank)
    bounds = [*range(first, last, DOCUMENTS_A_PIECE), last] if first < last else [first, last]
    # Documents are predicted one by one, so the result does not depend on the cuts.
    pieces = [target.with_name(f"{target.name}-{a}-{b}") for a, b in pairwise(bounds)]

    def predict() -> None:
        for piece, (a, b) in zip(pieces, pairwise(bounds), strict=True):
            if not piece.exists():
                save_sparse(piece, model.predict(X.rows(slice(a, b)), threads=threads))

    run_on_all_ranks(communicator, predict)
    stack_rows(communicator, pieces, target)


@register
class _Tree(NamedTuple):
    """The levels of a tree, known to all ranks. The work folder numbers the levels of all trees consecutively."""

    first: int  # number of its first level
    runs: list[range]  # its levels, in ranges that can be trained at the same time
    waits: list[bool]  # whether each level learns from mistakes of the levels above


def train_trees_over_ranks(
    communicator: Communicator, work: WorkFolder, data: RankerData, params: RankerParams, *,
    pred_params: Sequence[RankerPredParams], threads: int, seed: int = 0,
) -> list[XLinear]:  # fmt: skip
    """Train rankers of several trees on all ranks, bit for bit like ``train_trees``. Rank 0 makes the problems."""
    X, instances, on_first = data.X, Instances(data.X, params), data.trees if communicator.rank == 0 else []
    levels = run_on_all_ranks(communicator, lambda: [
        instances.levels(data.Y, tree.to_chain(), data.R, data.user_negatives) for tree in on_first
    ])  # fmt: skip
    trees: list[_Tree] = []
    for one in levels:
        waits = [one.waits(t) for t in range(one.depth)]
        trees.append(_Tree(sum(len(tree.waits) for tree in trees), one.runs(), waits))
    trees = communicator.broadcast(trees)
    level_preds: list[Sequence[LinearLevelPredParams]] = [
        per_level(one.hlm_args.model_chain, len(tree.waits)) for one, tree in zip(pred_params, trees, strict=True)
    ]
    models = [XLinear([], X.nr_sparse, X.nr_dense) for _ in trees]
    rounds = max(len(tree.runs) for tree in trees)
    for number in range(rounds):
        there = [i for i, tree in enumerate(trees) if number < len(tree.runs)]
        for i in there:
            first, run, predicted = trees[i].first, trees[i].runs[number], None
            if trees[i].waits[run.start]:
                predicted = work.file(f"predicted-{first + run.start}")
                predict_over_ranks(communicator, models[i], X, predicted, threads)
            own = levels[i] if levels else None
            run_on_all_ranks(communicator, partial(_store, work, own, run, first, predicted, instances))
        if number == rounds - 1:
            levels = []  # free rank 0's copy: from here on, all ranks map the problems from disk
        title = levels_title([tree.runs[number] if number < len(tree.runs) else None for tree in trees])
        numbers = [trees[i].first + t for i in there for t in trees[i].runs[number]]
        _train_levels(communicator, work, numbers, title, instances, threads, seed)
        for i in there:
            for t in trees[i].runs[number]:
                problem = work.problem(trees[i].first + t)
                weights = open_sparse(work.weights(trees[i].first + t))
                models[i].levels.append(Level(weights, problem.clusters, problem.bias, level_preds[i][t]))
    return models


def _store(
    work: WorkFolder, levels: Levels | None, run: range, first: int, predicted: Path | None, instances: Instances
) -> None:
    """Save the problems of a tree's levels ``run`` if this rank has ``levels``; its top level is number ``first``."""
    if levels is None:
        return
    for t in run:
        if not work.has_problem(first + t):
            known = open_sparse(predicted) if predicted is not None and t == run.start else None
            problem = levels.problem(t, known)
            work.save_problem(first + t, problem, level_tasks(instances, problem))


def _train_levels(
    communicator: Communicator, work: WorkFolder, numbers: Sequence[int], title: str, instances: Instances,
    threads: int, seed: int,
) -> None:  # fmt: skip
    """Train levels that do not depend on each other. On return, their weights are on disk."""
    joined = communicator.broadcast([t for t in numbers if work.weights(t).exists()])
    if len(joined) == len(numbers):
        return
    levels = {t: (work.problem(t), work.tasks(t)) for t in numbers}
    # The cuts ignore what is already solved, so that the blocks of an earlier run fit.
    plan: list[SubProblem] = []
    if communicator.rank == 0:
        plan = cut_into_sub_problems({t: tasks.work for t, (_, tasks) in levels.items()})
    plan = [sub for sub in communicator.broadcast(plan) if sub.level not in joined]
    name = communicator.broadcast(f"{os.getpid()}-{numbers[0]}")
    solve_over_ranks(communicator, work, plan, levels, instances, run=name, title=title, threads=threads, seed=seed)
    shapes = {t: instances.weights_shape(problem) for t, (problem, _) in levels.items()}
    _join(communicator, work, plan, shapes)


def _join(
    communicator: Communicator, work: WorkFolder, plan: Sequence[SubProblem], shapes: Mapping[int, tuple[int, int]]
) -> None:
    """Join the blocks of each level into its weight matrix. The ranks take levels in turn, the largest first."""
    release_freed_memory()  # the solvers' scratch memory: the files to write are as large
    blocks: dict[int, list[Path]] = {}
    for sub in plan:
        blocks.setdefault(sub.level, []).append(work.blocks / block_name(sub, work.key))
    mine = sorted(blocks, reverse=True)[communicator.rank :: communicator.size]

    def join() -> None:
        for t in mine:
            join_blocks(blocks[t], shapes[t], work.weights(t))

    run_on_all_ranks(communicator, join)
    remove_from_all_ranks(communicator, [path for t in mine for path in blocks[t]])


def threads_of_rank(communicator: Communicator, threads: int) -> int:
    """Return this rank's number of threads; -1 means its share of the host's cores. All ranks must call this."""
    own = usable_cores()
    all_ranks = communicator.allgather((communicator.host, own))
    if threads >= 1:
        return threads
    here = [cores for host, cores in all_ranks if host == communicator.host]
    return max(1, min(thread_count(threads), len(set().union(*here)) // len(here)))


def rankers_over_ranks(
    communicator: Communicator, folders: Sequence[Path], data: RankerData, *, key: str,
    params: RankerParams | None = None, pred_params: Sequence[RankerPredParams] | None = None, threads: int = -1,
    seed: int = 0,
) -> list[XLinear]:  # fmt: skip
    """Train the rankers of several trees on all ranks and save those of each tree to a folder of their own, with the
    same bytes as ``train_rankers(…).save``. A later call with the same ``key``, which identifies all inputs, resumes
    from ``<first folder>.work``.
    """
    check_pair(data.X, data.Y)
    pred_params = pred_params or [RankerPredParams()] * len(data.trees)
    for folder in folders:
        run_on_all_ranks(communicator, partial(RANKERS.check_place, folder))
    work = open_work_folder(communicator, folders[0], key)
    models = train_trees_over_ranks(
        communicator, work, data, params or RankerParams(), pred_params=pred_params,
        threads=threads_of_rank(communicator, threads), seed=seed,
    )  # fmt: skip

    def save() -> None:
        if communicator.rank == 0:
            for folder, model in zip(folders, models, strict=True):
                model.save(folder)

    run_on_all_ranks(communicator, save)
    if communicator.rank == 0:
        weights, levels = sum(model.nr_weights for model in models), sum(model.depth for model in models)
        _LOG.info("%s: %s weights in %s levels", folders[0], f"{weights:,}", levels)
        work.remove()
    communicator.barrier()
    return run_on_all_ranks(communicator, lambda: [XLinear.load(folder, data.X.nr_dense) for folder in folders])
