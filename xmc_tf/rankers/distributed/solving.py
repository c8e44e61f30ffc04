"""The sub-problems of a training, which do not depend on the number of ranks, and their solution by claims. A claim is
a file that only one thread can create (``O_EXCL``, atomic on local disks and NFS 3), not a message: that works with
every launcher, and a rank in a solver need not answer.
"""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event, Lock
from typing import NamedTuple

import numpy as np

from xmc_tf.common.progress import Progress
from xmc_tf.common.wire import register
from xmc_tf.rankers.distributed.joining import is_solved, write_block
from xmc_tf.rankers.distributed.work_folder import WorkFolder
from xmc_tf.rankers.levels import LevelProblem
from xmc_tf.rankers.tasks import Instances, LevelTasks, solve_task, task_labels
from xmc_tf.ranks.communicator import Communicator


class Claims:
    """Items that threads of all ranks take from the front; ``folder`` is shared, and new for every run."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count, self._next = folder, count, 0
        self._lock = Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def take(self) -> int | None:
        """Claim the first free item and return its number; None if all are taken."""
        with self._lock:
            at = self._first_free(self._next)
            while at < self._count:
                self._next = at + 1
                try:
                    os.close(os.open(self._folder / str(at), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                except FileExistsError:  # another thread was faster
                    at = self._first_free(at + 1)
                else:
                    return at
            self._next = self._count
            return None

    def _first_free(self, start: int) -> int:
        """Return the first free item by binary search: all take from the front, so taken items precede free ones."""
        step, low = 1, start
        while low < self._count and self._taken(low):
            start, low, step = low + 1, low + step, 2 * step
        high = min(low, self._count)
        while start < high:
            middle = (start + high) // 2
            if self._taken(middle):
                start = middle + 1
            else:
                high = middle
        return start

    def _taken(self, number: int) -> bool:
        return (self._folder / str(number)).exists()


# Enough to keep a few thousand threads busy until the end; each sub-problem costs a file and a claim.
MOST_SUB_PROBLEMS = 8192
# About a tenth of a second: less is not worth a file.
LEAST_WORK = 1_000_000


@register
class SubProblem(NamedTuple):
    """Neighbouring tasks of one level, solved by one thread into one file."""

    level: int
    first: int  # first task
    last: int  # exclusive
    work: int  # number of feature entries that one pass over its labels reads


def cut_into_sub_problems(
    works: Mapping[int, np.ndarray], *, most: int | None = None, least_work: int | None = None
) -> list[SubProblem]:
    """Return sub-problems of about the same work, the largest first, from the work of each level's tasks."""
    total = sum(int(work.sum()) for work in works.values())
    target = max(1, LEAST_WORK if least_work is None else least_work, total // (most or MOST_SUB_PROBLEMS))
    found = []
    for level, work in works.items():
        if len(work) == 0:
            continue
        before = np.concatenate(([0], np.cumsum(work, dtype=np.int64)))
        starts = np.flatnonzero(np.diff(before[:-1] // target, prepend=-1))
        for first, last in zip(starts, [*starts[1:], len(work)], strict=True):
            found.append(SubProblem(int(level), int(first), int(last), int(before[last] - before[first])))
    return sorted(found, key=lambda one: (-one.work, one.level, one.first))


# Seconds between two checks for the other ranks' blocks: each pause is a little longer than the one before.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.2


def block_name(sub: SubProblem, key: str) -> str:
    return f"{sub.level}.{sub.first}-{sub.last}.{key[:12]}.columns"


def solve_over_ranks(
    communicator: Communicator, work: WorkFolder, plan: Sequence[SubProblem],
    levels: Mapping[int, tuple[LevelProblem, LevelTasks]], instances: Instances, *,
    run: str, title: str, threads: int, seed: int,
) -> None:  # fmt: skip
    """Solve the unsolved sub-problems; return on all ranks when all are solved. ``run`` is a name not used before."""
    names = [block_name(sub, work.key) for sub in plan]
    unsolved: list[int] = []
    if communicator.rank == 0:
        unsolved = [i for i, name in enumerate(names) if not is_solved(work.blocks / name)]
    unsolved = communicator.broadcast(unsolved)
    claims, stop = Claims(work.claims(run), len(unsolved)), Event()

    def solve_until_none_is_left() -> None:
        try:
            while not stop.is_set() and (claimed := claims.take()) is not None:
                sub, solved = plan[unsolved[claimed]], []
                problem, tasks = levels[sub.level]
                for i in range(sub.first, sub.last):
                    labels = task_labels(problem, tasks, i)
                    columns = solve_task(instances, problem, int(tasks.cluster[i]), labels, seed)
                    count = int(columns.filled[0])
                    solved.append(columns._replace(labels=columns.labels[:count], indptr=columns.indptr[: count + 1]))
                write_block(work.blocks / names[unsolved[claimed]], solved)
        except BaseException:
            stop.set()
            raise

    total = sum(sub.work for sub in plan)
    outstanding = {names[i]: plan[i].work for i in unsolved}
    done = total - sum(outstanding.values())
    show = Progress(title, total=total, unit="units of work", quiet_s=2.0 if communicator.rank == 0 else float("inf"))
    with show as progress, ThreadPoolExecutor(threads) as pool:
        progress.add(done)
        futures = {pool.submit(solve_until_none_is_left) for _ in range(threads)}
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
        # Check for files instead of waiting in a barrier: MPI waits with a busy core, which other ranks may need.
        pause_s = _FIRST_PAUSE_S
        while outstanding:
            progress.add(_newly_solved(work.blocks, outstanding))
            if outstanding:
                time.sleep(pause_s)
                pause_s = min(1.3 * pause_s, _LONGEST_PAUSE_S)
    communicator.barrier()


def _newly_solved(folder: Path, outstanding: dict[str, int]) -> int:
    """Remove solved sub-problems from ``outstanding``; return their work."""
    there = {entry.name for entry in folder.iterdir()} & outstanding.keys()
    return sum(outstanding.pop(name) for name in there)
