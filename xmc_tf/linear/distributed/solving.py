"""One rank's part of the work: its threads claim sub-problems, the largest first, until none is left.

Before that, those that are in a team for a problem too wide for one thread solve it together (``wide_ranks.py``). While
such a thread waits for the others of its team, a second one of the lowest priority takes sub-problems in its place.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import numpy as np

from xmc_tf.common.progress import Progress
from xmc_tf.linear.distributed.account import Account
from xmc_tf.linear.distributed.blocks import block_name, is_solved, write_block
from xmc_tf.linear.distributed.claims import Claims
from xmc_tf.linear.distributed.plan import SubProblem, teams
from xmc_tf.linear.distributed.work_folder import WorkFolder
from xmc_tf.linear.kernels.emit import Columns
from xmc_tf.linear.problems import LevelProblem
from xmc_tf.linear.tasks import Instances, LevelTasks, solve_task, task_labels
from xmc_tf.linear.wide.parts import solve_wide
from xmc_tf.linear.wide.ranks import RankTeam, states_left
from xmc_tf.linear.wide.sockets import Connections, StoppedError, connect_threads
from xmc_tf.ranks.communicator import Communicator

# How long a rank that is done waits before it looks for what others have finished: each time a little longer.
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.005, 0.2
_LOWEST = 19  # of priorities


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
    threads = communicator.allgather(account.threads)
    first, everybody = sum(threads[: communicator.rank]), sum(threads)
    wide = {i: parts for i in missing if (parts := _parts(plan[i], levels))}
    left = sum(plan[i].work for i in missing)
    sizes = teams([plan[i].work for i in wide], list(wide.values()), left, everybody)
    in_teams = {i: [place % everybody for place in team] for i, team in zip(wide, sizes, strict=True) if len(team) > 1}
    missing = [i for i in missing if i not in in_teams]
    begun = communicator.broadcast({i: states_left(work.file("wide") / names[i]) for i in wide})
    claims, stop = Claims(work.claims(run), len(missing)), Event()
    connections: Sequence[Connections | None] = [None] * account.threads
    if in_teams:
        connections = connect_threads(communicator, account.threads, stop.is_set)

    def solve(i: int, team: Sequence[int], number: int, thread: int, share: float | None = None) -> None:
        """A thread's part of a sub-problem: all of it, but for those in a team."""

        def team_of(parts: int) -> RankTeam | None:
            # A task of fewer parts than the sub-problem's widest has no work for the last members.
            here = team[: min(len(team), parts)]
            folder = work.file("wide") / names[i]
            return RankTeam(parts, here, number, connections[thread], folder, begun[i]) if number < len(here) else None

        with account.busy(share):
            blocks = _solved(plan[i], *levels[plan[i].level], instances, seed, team_of, number == 0)
            if number == 0:
                write_block(work.blocks / names[i], blocks)
        if number == 0:
            account.solved(plan[i].work, (work.blocks / names[i]).stat().st_size)

    def take_and_solve(thread: int) -> None:
        try:
            if mine := [(i, team) for i, team in in_teams.items() if first + thread in team]:
                solve_in_teams(thread, mine)
            while not stop.is_set() and (claimed := claims.take()) is not None:
                solve(missing[claimed], [first + thread], 0, thread)
        except StoppedError:
            return
        except BaseException:
            stop.set()
            raise

    def solve_in_teams(thread: int, mine: Sequence[tuple[int, Sequence[int]]]) -> None:
        substitute = substitutes.submit(stand_in, thread, over := Event())
        try:
            for i, team in mine:
                solve(i, team, team.index(first + thread), thread)
        finally:
            over.set()
            substitute.result()  # its error, where that is why this thread was stopped

    def stand_in(thread: int, over: Event) -> None:
        """Takes sub-problems until the thread comes back from its teams; the one that it then has, it ends."""
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)  # on Linux: of this thread alone
        try:
            while not (stop.is_set() or over.is_set()) and (claimed := claims.take()) is not None:
                solve(missing[claimed], [first + thread], 0, thread, 0.0)  # the time is counted as the team's
        except BaseException:
            stop.set()
            raise

    total = sum(sub.work for sub in plan)
    outstanding = {names[i]: plan[i].work for i in [*in_teams, *missing]}
    done = total - sum(outstanding.values())
    show = Progress(title, total=total, unit="units of work", quiet_s=2.0 if communicator.rank == 0 else float("inf"))
    substitutes = ThreadPoolExecutor(account.threads, "substitute")
    with show as progress, substitutes, ThreadPoolExecutor(account.threads) as pool:
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
        finally:
            pool.shutdown()
            for one in filter(None, connections):
                one.close()
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


def _solved(
    sub: SubProblem, problem: LevelProblem, tasks: LevelTasks, instances: Instances, seed: int,
    team_of: Callable[[int], RankTeam | None], first: bool,
) -> list[Columns]:  # fmt: skip
    """The tasks of a sub-problem; those that are no team's are the first member's."""
    blocks = []
    for i in range(sub.first, sub.last):
        if parts := int(tasks.parts[i]):
            if (team := team_of(parts)) is not None:
                blocks.append(_filled(solve_wide(instances, problem, *_labels(problem, tasks, i), team, str(i))))
        elif first:
            blocks.append(_filled(solve_task(instances, problem, *_labels(problem, tasks, i), seed)))
    return blocks


def _finished(folder: Path, outstanding: dict[str, int]) -> int:
    """Takes off the list what has been finished; returns the work that was."""
    there = {entry.name for entry in folder.iterdir()} & outstanding.keys()
    return sum(outstanding.pop(name) for name in there)
