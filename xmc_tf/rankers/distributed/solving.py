"""Sub-problems of distributed training, and the threads that claim and solve them. The sub-problems do not depend on
the number of ranks. A claim is a file that only one thread can create (``O_EXCL`` is atomic on local disks and NFS 3).
Unlike messages, files work with every launcher and need no answer from a rank that is busy solving.
"""

import logging
import math
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import lru_cache
from pathlib import Path
from threading import Event, Lock
from typing import NamedTuple

import numpy as np

from xmc_tf.common.progress import Progress
from xmc_tf.common.serialization import register
from xmc_tf.rankers.distributed.work_folder import WorkFolder
from xmc_tf.rankers.kernels.emit import WeightColumns
from xmc_tf.rankers.problems import LevelProblem
from xmc_tf.rankers.tasks import Instances, LevelTasks, solve_task, task_labels
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.store.arrays import save_group, sparse_group
from xmc_tf.store.files import write_in_steps

_LOG = logging.getLogger(__name__)
_HEAD_BYTES, _LABEL_BYTES = 8, 16


class WeightBlock(NamedTuple):
    """A file of solved weight columns: number of labels, labels, counts, features, weights."""

    path: Path
    labels: np.ndarray  # label of each column
    counts: np.ndarray  # number of weights of each column

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the features and the weights of all columns in the order of ``labels``, memory-mapped."""
        nr_weights = int(self.counts.sum())
        if nr_weights == 0:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        start = _HEAD_BYTES + _LABEL_BYTES * len(self.labels)
        both = np.memmap(self.path, np.int32, "r", start, (2, nr_weights)).view(np.ndarray)
        return both[0], both[1].view(np.float32)


def write_block(path: Path, parts: Sequence[WeightColumns]) -> None:
    """Write the columns of a sub-problem's tasks to a block atomically. Only one thread may write a given block."""
    labels = np.concatenate([part.labels for part in parts]).astype(np.int64)
    counts = np.concatenate([np.diff(part.indptr) for part in parts]).astype(np.int64)
    # There are thousands of blocks: a fixed name needs half the system calls of a unique one.
    unfinished = f"{path.parent}/.{path.name}.part"
    try:
        with open(unfinished, "wb", buffering=0) as file:
            beginning = np.int64(len(labels)).tobytes() + labels.tobytes() + counts.tobytes()
            write_in_steps(file, memoryview(beginning))
            at = len(beginning)
            for name, dtype in (("features", np.int32), ("weights", np.float32)):
                for part in parts:
                    array = np.ascontiguousarray(getattr(part, name), dtype)
                    write_in_steps(file, array.data, at)
                    at += array.nbytes
        os.replace(unfinished, path)
    except OSError:
        Path(unfinished).unlink(missing_ok=True)
        raise


def open_block(path: Path) -> WeightBlock:
    """Open a block and read its labels and counts."""
    with path.open("rb") as file:
        numbers = np.fromfile(file, np.int64, 2 * int(np.fromfile(file, np.int64, 1)[0]))
    return WeightBlock(path, *np.split(numbers, 2))


_FEATURES, _WEIGHTS = range(2)  # in ``WeightBlock.columns``
_MOST_MAPPED = 4096  # maximum number of blocks mapped at a time, if the process may open so many files


class _Columns:
    """Index of the position of each label's column in the blocks."""

    def __init__(self, blocks: Sequence[WeightBlock], nr_labels: int) -> None:
        may_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = math.inf if may_open < 0 else may_open - len(os.listdir("/dev/fd"))
        mapped = int(min(_MOST_MAPPED, max(1, left // 2)))
        self._columns = lru_cache(mapped)(lambda number: blocks[number].columns())
        self._piece = _piece_entries(len(blocks))
        self.block = np.full(nr_labels, -1, np.int32)
        self.start, counts = np.zeros(nr_labels, np.int64), np.zeros(nr_labels, np.int64)
        for number, block in enumerate(blocks):
            self.block[block.labels] = number
            self.start[block.labels] = np.cumsum(block.counts) - block.counts
            counts[block.labels] = block.counts
        self.indptr = np.concatenate(([0], np.cumsum(counts)))

    def pieces(self, field: int, begin: int, end: int) -> Iterator[np.ndarray]:
        """Yield the entries ``[begin, end)`` of all columns, ordered by label, in pieces that reuse one buffer."""
        room = np.empty(min(self._piece, end - begin), (np.int32, np.float32)[field])
        while begin < end:
            stop = min(end, begin + self._piece)
            for block, start, first, last in self._runs(begin, stop):
                room[first - begin : last - begin] = self._columns(block)[field][start : start + last - first]
            yield room[: stop - begin]
            begin = stop

    def _runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (block, position in it, begin, end) of each contiguous run of entries, block by block."""
        a = int(np.searchsorted(self.indptr, begin, side="right")) - 1
        b = int(np.searchsorted(self.indptr, end, side="left"))
        filled = np.flatnonzero(np.diff(self.indptr[a : b + 1])) + a
        block, start, low = self.block[filled], self.start[filled], self.indptr[filled]
        low, skipped = np.maximum(low, begin), np.maximum(begin - low, 0)
        start = start + skipped
        high = np.minimum(self.indptr[filled + 1], end)
        follows = (block[1:] == block[:-1]) & (start[1:] == start[:-1] + (high - low)[:-1])
        at = np.concatenate(([0], np.flatnonzero(~follows) + 1))
        runs = np.stack([block[at], start[at], low[at], np.append(low[at[1:]], end)], axis=1)
        yield from runs[np.argsort(runs[:, 0], kind="stable")].tolist()


def _piece_entries(nr_blocks: int) -> int:
    # Small pieces stay in the processor's cache between checksum and writing. But a piece may have labels of all
    # blocks, and blocks that are too many to stay open are opened again for every piece.
    return min(1 << 22, max(1 << 18, 512 * nr_blocks))


def join_blocks(paths: Sequence[Path], shape: tuple[int, int], target: Path) -> None:
    """Join blocks into one sparse matrix."""
    columns = _Columns([open_block(path) for path in paths], shape[1])
    count = int(columns.indptr[-1])
    data, indices = (columns.pieces(field, 0, count) for field in (_WEIGHTS, _FEATURES))
    save_group(target, sparse_group("csc", shape, count, data, indices, [columns.indptr]))


class Claims:
    """A queue of items that the threads of all ranks claim in order; ``folder`` is shared, and new for every run."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count, self._next = folder, count, 0
        self._lock = Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def take(self) -> int | None:
        """Claim the first free item and return its number, or None if all items are taken."""
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
        """Return the first free item at or after ``start``, by binary search, because items are claimed in order."""
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
    """Neighbouring tasks of one level that one thread solves and writes to one file."""

    level: int
    first: int  # first task
    last: int  # exclusive
    work: int  # number of feature entries that one pass over its labels reads


def cut_into_sub_problems(
    works: Mapping[int, np.ndarray], *, most: int | None = None, least_work: int | None = None
) -> list[SubProblem]:
    """Group the tasks of each level into sub-problems of about equal work, the largest first."""
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
    """Solve the unsolved sub-problems on all ranks; return when all are solved. Every call needs a new ``run``."""
    names = [block_name(sub, work.key) for sub in plan]
    unsolved: list[int] = []
    if communicator.rank == 0:
        unsolved = [i for i, name in enumerate(names) if not (work.blocks / name).exists()]
    unsolved = communicator.broadcast(unsolved)
    claims, stop = Claims(work.file(f"claims-{run}"), len(unsolved)), Event()
    own: list[int] = []  # the sub-problems that this rank has solved
    begun = time.monotonic()

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
                own.append(unsolved[claimed])
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
        ready = time.monotonic()
        # Check for files instead of waiting in a barrier: MPI waits with a busy core, which other ranks may need.
        pause_s = _FIRST_PAUSE_S
        while outstanding:
            progress.add(_newly_solved(work.blocks, outstanding))
            if outstanding:
                time.sleep(pause_s)
                pause_s = min(1.3 * pause_s, _LONGEST_PAUSE_S)
    share = sum(plan[i].work for i in own) / max(1, total)
    mine = (len(own), share, ready - begun, time.monotonic() - ready)
    for rank, (count, part, solving_s, waiting_s) in enumerate(communicator.gather(mine)):
        _LOG.debug(
            "%s: rank %d solved %d of %d sub-problems (%.0f %% of the work) in %.1f s and waited %.1f s for the others",
            title, rank, count, len(plan), 100 * part, solving_s, waiting_s,
        )  # fmt: skip
    communicator.barrier()


def _newly_solved(folder: Path, outstanding: dict[str, int]) -> int:
    """Remove the sub-problems that are now solved from ``outstanding``, and return their total work."""
    there = {entry.name for entry in folder.iterdir()} & outstanding.keys()
    return sum(outstanding.pop(name) for name in there)
