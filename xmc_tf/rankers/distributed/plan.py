"""The division of a training into sub-problems, which does not depend on the number of ranks; and claims of them.

A claim is a file that only one thread can create, not a message: the ranks share a folder anyway, files work with every
launcher (MPI's one-sided counters do not), and a rank in a solver need not answer messages. Creating a file that must
not exist (``O_EXCL``) is atomic on local disks and on NFS 3 and later.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np

from xmc_tf.common.wire import register


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
    """Return sub-problems of about the same work of levels that can be trained at the same time, the largest first.

    ``works`` has the work of each level's tasks. A task is never cut, so a wide cluster over all documents makes few
    large sub-problems, which start first.
    """
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
