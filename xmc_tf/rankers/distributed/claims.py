"""Claims of sub-problems: a claim is a file that only one thread can create.

Claims are files and not messages, because the ranks share a folder anyway, because files work with every launcher
(Horovod has collective calls only, MPI's one-sided counters work with MPI only), and because a rank in a solver need
not answer messages. Creating a file that must not exist (``O_EXCL``) is atomic on local disks and on NFS 3 and later.
"""

import os
from pathlib import Path
from threading import Lock


class Claims:
    """A list of items that threads of all ranks take from the front.

    Args:
        folder: a folder that all ranks share, new for every run.
        count: number of items.
    """

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
