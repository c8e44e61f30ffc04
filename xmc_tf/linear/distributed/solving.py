"""One rank's part of the work: its threads claim sub-problems, the largest first, until none is left.

Before that, those that are in a team for a problem too wide for one thread solve it together (``wide_files.py``).
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import numpy as np

from xmc_tf.collective.communicator import Communicator
from xmc_tf.common.progress import Progress
from xmc_tf.linear.distributed.account import Account
from xmc_tf.linear.distributed.blocks import block_name, is_solved, write_block
from xmc_tf.linear.distributed.claims import Claims
from xmc_tf.linear.distributed.plan import SubProblem
from xmc_tf.linear.distributed.wide_files import FileTeam, StoppedError, states_left, teams
from xmc_tf.linear.distributed.work_folder import WorkFolder
from xmc_tf.linear.kernels.emit import Columns
from xmc_tf.linear.problems import LevelProblem
from xmc_tf.linear.tasks import Instances, LevelTasks, solve_task, task_labels
from xmc_tf.linear.wide_parts import solve_wide

# How long a rank that is done waits before it looks for what others have finished: each time a little longer.
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.005, 0.2


def solve_over_ranks(
    communicator: Communicator,
    work: WorkFolder,
    plan: Sequence[SubProblem],
    levels: Mapping[int, tuple[LevelProblem, LevelTasks]],
    instances: Instances,
    *,
    run: str,
    title: str,
    account: Account,
    seed: int,
) -> None:
    """Solves what is left of a plan; returns on every rank when all of it is done.

    Args:
        communicator: the ranks.
        work: where the blocks go.
        plan: the same on all ranks.
        levels: problem and tasks of each level of the plan.
        instances: the training features.
        run: a name for this hand-out; new for every one, the same on all ranks.
        title: what rank 0 shows.
        account: receives what this rank does.
        seed: of the solvers' visiting orders.
    """
    names = [block_name(sub, work.key) for sub in plan]
    missing: list[int] = []
    if communicator.rank == 0:
        missing = [i for i, name in enumerate(names) if not is_solved(work.blocks / name)]
    missing = communicator.broadcast(missing)
    wide = [i for i in missing if _parts(plan[i], levels)]
    missing = [i for i in missing if not _parts(plan[i], levels)]
    folders = {i: work.file("wide") / names[i] for i in wide}
    begun = communicator.broadcast([states_left(folders[i]) if communicator.rank == 0 else [] for i in wide])
    threads = communicator.allgather(account.threads)
    first = sum(threads[: communicator.rank])
    members = teams([_parts(plan[i], levels) for i in wide], sum(threads))
    claims, stop = Claims(work.claims(run), len(missing)), Event()

    def solve_in_teams(thread: int) -> None:
        for i, team, left in zip(wide, members, begun, strict=True):
            numbers = [number for number, place in enumerate(team) if place % sum(threads) == first + thread]
            if not numbers or stop.is_set():
                continue
            with account.busy():
                _solve_together(
                    work.blocks / names[i], folders[i], run, plan[i], *levels[plan[i].level], instances, seed,
                    len(team), numbers[0], left, stop.is_set,
                )  # fmt: skip
            if numbers[0] == 0:
                account.solved(plan[i].work, (work.blocks / names[i]).stat().st_size)

    def take_and_solve(thread: int) -> None:
        try:
            solve_in_teams(thread)
        except StoppedError:
            return
        except BaseException:
            stop.set()
            raise
        while not stop.is_set() and (claimed := claims.take()) is not None:
            sub = plan[missing[claimed]]
            with account.busy():
                path = work.blocks / names[missing[claimed]]
                _solve(path, sub, *levels[sub.level], instances, seed)
            account.solved(sub.work, path.stat().st_size)

    total = sum(sub.work for sub in plan)
    outstanding = {names[i]: plan[i].work for i in [*wide, *missing]}
    done = total - sum(outstanding.values())
    show = Progress(title, total=total, unit="units of work", quiet_s=2.0 if communicator.rank == 0 else float("inf"))
    with show as progress, ThreadPoolExecutor(account.threads) as pool:
        progress.add(done)
        futures = {pool.submit(take_and_solve, thread) for thread in range(account.threads)}
        try:
            while futures:
                finished, futures = wait(futures, timeout=1.0, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
                if communicator.rank == 0:
                    progress.add(_finished(work.blocks, outstanding))
        except BaseException:
            stop.set()
            raise
        # Looking at files and not in a barrier: MPI waits with a busy core, which the others may need.
        look_s = _FIRST_LOOK_S
        while outstanding:
            progress.add(_finished(work.blocks, outstanding))
            if outstanding:
                time.sleep(look_s)
                look_s = min(1.3 * look_s, _LONGEST_LOOK_S)
    communicator.barrier()
    if communicator.rank == 0:
        shutil.rmtree(work.file("wide"), ignore_errors=True)


def _parts(sub: SubProblem, levels: Mapping[int, tuple[LevelProblem, LevelTasks]]) -> int:
    """Into how many parts its widest task is dealt; 0: none is."""
    return int(levels[sub.level][1].parts[sub.first : sub.last].max())


def _labels(problem: LevelProblem, tasks: LevelTasks, i: int) -> tuple[int, np.ndarray]:
    """A task's cluster and labels."""
    cluster = int(tasks.cluster[i])
    return cluster, task_labels(problem, cluster, int(tasks.begin[i]), int(tasks.end[i]))


def _filled(columns: Columns) -> Columns:
    filled = int(columns.filled[0])
    return columns._replace(labels=columns.labels[:filled], indptr=columns.indptr[: filled + 1])


def _solve(
    path: Path, sub: SubProblem, problem: LevelProblem, tasks: LevelTasks, instances: Instances, seed: int
) -> None:
    parts = []
    for i in range(sub.first, sub.last):
        parts.append(_filled(solve_task(instances, problem, *_labels(problem, tasks, i), seed)))
    write_block(path, parts)


def _solve_together(
    path: Path, folder: Path, run: str, sub: SubProblem, problem: LevelProblem, tasks: LevelTasks,
    instances: Instances, seed: int, members: int, number: int, begun: list[str], stopped: Callable[[], bool],
) -> None:  # fmt: skip
    """A member's part of a sub-problem with wide tasks; the narrow ones beside them are the first member's."""
    blocks = []
    for i in range(sub.first, sub.last):
        if parts := int(tasks.parts[i]):
            # A task of fewer parts than the sub-problem's widest has no work for the last members.
            here = min(members, parts)
            if number < here:
                team = FileTeam(folder, f"{run}.{i}", parts, here, number, begun, stopped)
                blocks.append(_filled(solve_wide(instances, problem, *_labels(problem, tasks, i), team, str(i))))
        elif number == 0:
            blocks.append(_filled(solve_task(instances, problem, *_labels(problem, tasks, i), seed)))
    if number == 0:
        write_block(path, blocks)


def _finished(folder: Path, outstanding: dict[str, int]) -> int:
    """Takes off the list what has been finished; returns the work that was."""
    there = {entry.name for entry in folder.iterdir()} & outstanding.keys()
    return sum(outstanding.pop(name) for name in there)
