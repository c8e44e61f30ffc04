"""One rank's part of the work: its threads claim sub-problems, the largest first, until none is left."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

from xmc_tf.collective.communicator import Communicator
from xmc_tf.common.progress import Progress
from xmc_tf.linear.distributed.account import Account
from xmc_tf.linear.distributed.blocks import block_name, is_solved, write_block
from xmc_tf.linear.distributed.claims import Claims
from xmc_tf.linear.distributed.plan import SubProblem
from xmc_tf.linear.distributed.work_folder import WorkFolder
from xmc_tf.linear.problems import LevelProblem
from xmc_tf.linear.tasks import Instances, LevelTasks, solve_task, task_labels

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
    claims, stop = Claims(work.claims(run), len(missing)), Event()

    def take_and_solve() -> None:
        while not stop.is_set() and (claimed := claims.take()) is not None:
            sub = plan[missing[claimed]]
            with account.busy():
                path = work.blocks / names[missing[claimed]]
                _solve(path, sub, *levels[sub.level], instances, seed)
            account.solved(sub.work, path.stat().st_size)

    total = sum(sub.work for sub in plan)
    outstanding = {names[i]: plan[i].work for i in missing}
    done = total - sum(outstanding.values())
    show = Progress(title, total=total, unit="units of work", quiet_s=2.0 if communicator.rank == 0 else float("inf"))
    with show as progress, ThreadPoolExecutor(account.threads) as pool:
        progress.add(done)
        futures = {pool.submit(take_and_solve) for _ in range(account.threads)}
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


def _solve(
    path: Path, sub: SubProblem, problem: LevelProblem, tasks: LevelTasks, instances: Instances, seed: int
) -> None:
    parts = []
    for i in range(sub.first, sub.last):
        cluster = int(tasks.cluster[i])
        labels = task_labels(problem, cluster, int(tasks.begin[i]), int(tasks.end[i]))
        columns = solve_task(instances, problem, cluster, labels, seed)
        filled = int(columns.filled[0])
        parts.append(columns._replace(labels=columns.labels[:filled], indptr=columns.indptr[: filled + 1]))
    write_block(path, parts)


def _finished(folder: Path, outstanding: dict[str, int]) -> int:
    """Takes off the list what has been finished; returns the work that was."""
    there = {entry.name for entry in folder.iterdir()} & outstanding.keys()
    return sum(outstanding.pop(name) for name in there)
