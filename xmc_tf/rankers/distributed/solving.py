"""One rank's part of the work: its threads claim sub-problems, the largest first, until none is left."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from xmc_tf.common.progress import Progress
from xmc_tf.rankers.distributed.blocks import block_name, is_solved, write_block
from xmc_tf.rankers.distributed.plan import Claims, SubProblem
from xmc_tf.rankers.distributed.work_folder import WorkFolder
from xmc_tf.rankers.kernels.emit import WeightColumns
from xmc_tf.rankers.problems import LevelProblem
from xmc_tf.rankers.tasks import Instances, LevelTasks, solve_task, task_labels
from xmc_tf.ranks.communicator import Communicator

# Seconds between two checks for the other ranks' blocks: each pause is a little longer than the one before.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.2


@dataclass(frozen=True, eq=False)
class SolvingJob:
    """The sub-problems of some levels, and the data to solve them; the same on all ranks."""

    plan: Sequence[SubProblem]  # the largest first
    levels: Mapping[int, tuple[LevelProblem, LevelTasks]]
    instances: Instances
    seed: int  # of the orders in which the solvers visit the documents


def solve_over_ranks(
    communicator: Communicator, work: WorkFolder, job: SolvingJob, *, run: str, title: str, threads: int
) -> None:
    """Solve the unsolved sub-problems; return on all ranks when all are solved. ``run`` is a name not used before."""
    names = [block_name(sub, work.key) for sub in job.plan]
    unsolved: list[int] = []
    if communicator.rank == 0:
        unsolved = [i for i, name in enumerate(names) if not is_solved(work.blocks / name)]
    unsolved = communicator.broadcast(unsolved)
    claims, stop = Claims(work.claims(run), len(unsolved)), Event()

    def solve_until_none_is_left() -> None:
        try:
            while not stop.is_set() and (claimed := claims.take()) is not None:
                sub, block = job.plan[unsolved[claimed]], work.blocks / names[unsolved[claimed]]
                write_block(block, _solved(job, sub))
        except BaseException:
            stop.set()
            raise

    total = sum(sub.work for sub in job.plan)
    outstanding = {names[i]: job.plan[i].work for i in unsolved}
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


def _solved(job: SolvingJob, sub: SubProblem) -> list[WeightColumns]:
    """Return the columns of a sub-problem's tasks."""
    problem, tasks = job.levels[sub.level]
    blocks = []
    for i in range(sub.first, sub.last):
        cluster, begin, end, _ = (int(column[i]) for column in tasks)
        columns = solve_task(job.instances, problem, cluster, task_labels(problem, cluster, begin, end), job.seed)
        filled = int(columns.filled[0])
        blocks.append(columns._replace(labels=columns.labels[:filled], indptr=columns.indptr[: filled + 1]))
    return blocks


def _newly_solved(folder: Path, outstanding: dict[str, int]) -> int:
    """Remove solved sub-problems from ``outstanding``; return their work."""
    there = {entry.name for entry in folder.iterdir()} & outstanding.keys()
    return sum(outstanding.pop(name) for name in there)
