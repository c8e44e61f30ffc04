"""Threads and arrays for compiled kernels. Each free thread of a pool takes the next range of the work."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Self

import numpy as np

from xmc_tf.common.threads import thread_count


class ThreadPool:
    def __init__(self, threads: int = -1) -> None:
        self.threads = thread_count(threads)
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def parts(self) -> int:
        """Recommended number of ranges: a few per thread, so that no thread waits long for the last range."""
        return 1 if self.threads == 1 else 4 * self.threads

    def run(self, task: Callable[[int, int], Any], cuts: np.ndarray) -> list[Any]:
        """Call ``task(low, high)`` for each range between two cuts, and return the results in order."""
        bounds = cuts.tolist()
        if self._pool is None or len(bounds) <= 2:
            return [task(low, high) for low, high in pairwise(bounds)]
        return list(self._pool.map(task, bounds[:-1], bounds[1:]))


def even_cuts(before: np.ndarray, parts: int) -> np.ndarray:
    """Return the bounds of at most ``parts`` ranges of about equal work; ``before`` is the cumulative work before each
    item.
    """
    cuts = np.searchsorted(before, np.linspace(0, before[-1], parts + 1)[1:-1])
    return np.unique(np.concatenate(([0], cuts, [before.size - 1])))


def read_only(array: np.ndarray, kind: type) -> np.ndarray:
    """Return a read-only view of an array, so that mapped files and arrays in memory share one compiled kernel."""
    view = np.require(np.asarray(array), dtype=kind, requirements=["C", "A"]).view()
    view.flags.writeable = False
    return view
