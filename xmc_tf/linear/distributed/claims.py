"""Who takes what: a claim is a file that only one can make.

Files and not messages, because the ranks share a folder anyway, because every launcher's ranks can do it (Horovod has
collective calls only, MPI's one-sided counters are MPI's alone), and because a rank that is deep in a solver need not
answer anybody. Creating a file that must not exist (``O_EXCL``) is atomic on local disks and on NFS from version 3 on.
"""

import os
from pathlib import Path
from threading import Lock


class Claims:
    """A list of things that many threads of many processes take from the front.

    Args:
        folder: shared by all; new for every run.
        count: how many things there are.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count, self._next = folder, count, 0
        self._lock = Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def take(self) -> int | None:
        """The number of the first thing that nobody has taken, from now on ours; None when all are taken."""
        with self._lock:
            at = self._first_free(self._next)
            while at < self._count:
                self._next = at + 1
                try:
                    os.close(os.open(self._folder / str(at), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                except FileExistsError:  # somebody was quicker
                    at = self._first_free(at + 1)
                else:
                    return at
            self._next = self._count
            return None

    def _first_free(self, start: int) -> int:
        """Everybody takes the first that is free, so what is taken lies in front: a few looks find where it ends."""
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
