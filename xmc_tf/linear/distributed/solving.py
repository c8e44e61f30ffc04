"""One rank's part of the work: its threads claim sub-problems, the largest first, until none is left.

Before that, threads that belong to a team solve a problem that is too wide for one thread (``wide/ranks.py``). While
such a thread waits for the others of its team, a substitute thread of the lowest priority solves sub-problems in its
place.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import NamedTuple

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

# Seconds between two checks for the other ranks' blocks: each pause is a little longer than the one before.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.2
_LOWEST_PRIORITY = 19


@dataclass(frozen=True, eq=False)
class SolvingJob:
    """The sub-problems of some levels, and the data to solve them; the same on all ranks.

    Args:
        plan: the sub-problems, the largest first.
        levels: problem and tasks of each level of the plan.
        instances: the training features.
        seed: seed of the orders in which the solvers visit the documents.
    """

    plan: Sequence[SubProblem]
    levels: Mapping[int, tuple[LevelProblem, LevelTasks]]
    instances: Instances
    seed: int

    def parts(self, i: int) -> int:
        """Return the number of parts of the widest task of a sub-problem; 0: no task needs a team."""
        sub = self.plan[i]
        return int(self.levels[sub.level][1].parts[sub.first : sub.last].max())


class _Assignment(NamedTuple):
    """The unsolved sub-problems of a plan, by who solves them.

    Attributes:
        first: number of this rank's first thread among the threads of all ranks.
        single: sub-problems that one thread solves each, whichever is free.
        teams: for each other sub-problem, the numbers of the threads that solve it as a team.
        states: names of the solver states that an earlier run left of each wide sub-problem.
    """

    first: int
    single: list[int]
    teams: dict[int, list[int]]
    states: dict[int, list[str]]


def solve_over_ranks(
    communicator: Communicator, work: WorkFolder, job: SolvingJob, *, run: str, title: str, account: Account
) -> None:
    """Solve the unsolved sub-problems of a job; return on all ranks when all of them are solved.

    Args:
        communicator: the ranks.
        work: folder for the solved blocks.
        job: the sub-problems.
        run: name of this call, the same on all ranks and not used before.
        title: title of rank 0's progress bar.
        account: records the work of this rank.
    """
    names = [block_name(sub, work.key) for sub in job.plan]
    assignment = _assign(communicator, work, job, names, account.threads)
    stop = Event()
    claims = Claims(work.claims(run), len(assignment.single))
    connections: Sequence[Connections | None] = [None] * account.threads
    if assignment.teams:
        connections = connect_threads(communicator, account.threads, stop.is_set)
    threads = _RankThreads(work, job, names, assignment, claims, connections, account, stop)

    total = sum(sub.work for sub in job.plan)
    outstanding = {names[i]: job.plan[i].work for i in [*assignment.teams, *assignment.single]}
    done = total - sum(outstanding.values())
    show = Progress(title, total=total, unit="units of work", quiet_s=2.0 if communicator.rank == 0 else float("inf"))
    with show as progress, threads.substitutes, ThreadPoolExecutor(account.threads) as pool:
        progress.add(done)
        futures = {pool.submit(threads.run, thread) for thread in range(account.threads)}
        try:
            while futures:
                finished, futures = wait(futures, timeout=1.0, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
                if communicator.rank == 0:
                    progress.add(_newly_solved(work.blocks, outstanding))
        except BaseException:
            stop.set()
            raise
        finally:
            pool.shutdown()
            for one in filter(None, connections):
                one.close()
        # Check for files instead of waiting in a barrier: MPI waits with a busy core, which other ranks may need.
        pause_s = _FIRST_PAUSE_S
        while outstanding:
            progress.add(_newly_solved(work.blocks, outstanding))
            if outstanding:
                time.sleep(pause_s)
                pause_s = min(1.3 * pause_s, _LONGEST_PAUSE_S)
    communicator.barrier()
    if communicator.rank == 0:
        shutil.rmtree(work.file("wide"), ignore_errors=True)


def _assign(
    communicator: Communicator, work: WorkFolder, job: SolvingJob, names: Sequence[str], own_threads: int
) -> _Assignment:
    """Return who solves which sub-problem; the same on all ranks, but for ``first``."""
    missing: list[int] = []
    if communicator.rank == 0:
        missing = [i for i, name in enumerate(names) if not is_solved(work.blocks / name)]
    missing = communicator.broadcast(missing)
    threads = communicator.allgather(own_threads)
    first, count = sum(threads[: communicator.rank]), sum(threads)
    wide = {i: parts for i in missing if (parts := job.parts(i))}
    left = sum(job.plan[i].work for i in missing)
    spans = teams([job.plan[i].work for i in wide], list(wide.values()), left, count)
    in_teams = {i: [place % count for place in span] for i, span in zip(wide, spans, strict=True) if len(span) > 1}
    states = communicator.broadcast({i: states_left(work.file("wide") / names[i]) for i in wide})
    return _Assignment(first, [i for i in missing if i not in in_teams], in_teams, states)


class _RankThreads:
    """The threads of one rank, and their substitutes; see ``solve_over_ranks`` for the arguments.

    Args:
        work: folder for the solved blocks.
        job: the sub-problems.
        names: file name of each sub-problem's block.
        assignment: the unsolved sub-problems.
        claims: claims on ``assignment.single``.
        connections: connections of each thread to the other members of its teams.
        account: records the work of this rank.
        stop: set when a thread has failed, to end the others.
    """

    def __init__(
        self, work: WorkFolder, job: SolvingJob, names: Sequence[str], assignment: _Assignment, claims: Claims,
        connections: Sequence[Connections | None], account: Account, stop: Event,
    ) -> None:  # fmt: skip
        self._work, self._job, self._names, self._assignment = work, job, names, assignment
        self._claims, self._connections, self._account, self._stop = claims, connections, account, stop
        self.substitutes = ThreadPoolExecutor(account.threads, "substitute")

    def run(self, thread: int) -> None:
        """Solve as thread number ``thread`` of this rank: first with its teams, then alone, until none is left."""
        try:
            number = self._assignment.first + thread
            if own := [(i, team) for i, team in self._assignment.teams.items() if number in team]:
                self._solve_in_teams(thread, own)
            while not self._stop.is_set() and (claimed := self._claims.take()) is not None:
                self._solve_alone(claimed, thread)
        except StoppedError:
            return
        except BaseException:
            self._stop.set()
            raise

    def _solve_in_teams(self, thread: int, own: Sequence[tuple[int, Sequence[int]]]) -> None:
        over = Event()
        substitute: Future[None] = self.substitutes.submit(self._stand_in, thread, over)
        try:
            for i, team in own:
                self._solve(i, team, team.index(self._assignment.first + thread), thread)
        finally:
            over.set()
            substitute.result()  # raises its error, which may be why this thread was stopped

    def _stand_in(self, thread: int, over: Event) -> None:
        """Solve sub-problems until the thread returns from its teams; complete the last one."""
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)  # on Linux: of this thread alone
        try:
            while not (self._stop.is_set() or over.is_set()) and (claimed := self._claims.take()) is not None:
                self._solve_alone(claimed, thread, 0.0)  # its time is counted as the team's
        except BaseException:
            self._stop.set()
            raise

    def _solve_alone(self, claimed: int, thread: int, share: float | None = None) -> None:
        self._solve(self._assignment.single[claimed], [self._assignment.first + thread], 0, thread, share)

    def _solve(self, i: int, team: Sequence[int], number: int, thread: int, share: float | None = None) -> None:
        """Solve this thread's part of a sub-problem: all of it, unless it has a team."""
        block, folder = self._work.blocks / self._names[i], self._work.file("wide") / self._names[i]

        def team_of(parts: int) -> RankTeam | None:
            # A task with fewer parts than the sub-problem's widest has no work for the last members.
            here, states = team[: min(len(team), parts)], self._assignment.states[i]
            if number >= len(here):
                return None
            return RankTeam(parts, here, number, self._connections[thread], folder, states)

        with self._account.busy(share):
            columns = _solved(self._job, self._job.plan[i], team_of, number == 0)
            if number == 0:
                write_block(block, columns)
        if number == 0:
            self._account.solved(self._job.plan[i].work, block.stat().st_size)


def _solved(
    job: SolvingJob, sub: SubProblem, team_of: Callable[[int], RankTeam | None], first: bool
) -> list[Columns]:  # fmt: skip
    """Return the columns of a sub-problem's tasks; the first member of a team solves the tasks that need no team."""
    problem, tasks = job.levels[sub.level]
    blocks = []
    for i in range(sub.first, sub.last):
        if parts := int(tasks.parts[i]):
            if (team := team_of(parts)) is not None:
                blocks.append(_filled(solve_wide(job.instances, problem, *_labels(problem, tasks, i), team, str(i))))
        elif first:
            blocks.append(_filled(solve_task(job.instances, problem, *_labels(problem, tasks, i), job.seed)))
    return blocks


def _labels(problem: LevelProblem, tasks: LevelTasks, i: int) -> tuple[int, np.ndarray]:
    """Return the cluster and the labels of a task."""
    cluster = int(tasks.cluster[i])
    return cluster, task_labels(problem, cluster, int(tasks.begin[i]), int(tasks.end[i]))


def _filled(columns: Columns) -> Columns:
    filled = int(columns.filled[0])
    return columns._replace(labels=columns.labels[:filled], indptr=columns.indptr[: filled + 1])


def _newly_solved(folder: Path, outstanding: dict[str, int]) -> int:
    """Remove solved sub-problems from ``outstanding``; return their work."""
    there = {entry.name for entry in folder.iterdir()} & outstanding.keys()
    return sum(outstanding.pop(name) for name in there)
