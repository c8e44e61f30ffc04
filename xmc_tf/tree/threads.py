"""Threads around compiled kernels: ranges of about the same work, taken as the threads come free."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import numpy as np

from xmc_tf.common.threads import thread_count


class Workers:
    """Some threads that take ranges of a work.

    Example:
        >>> with Workers(2) as workers:
        ...     workers.run(lambda low, high: high - low, np.array([0, 3, 10]))
        [3, 7]

    Args:
        threads: how many; -1 for one per core.
    """

    def __init__(self, threads: int = -1) -> None:
        self.threads = thread_count(threads)
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def parts(self) -> int:
        """Into how many ranges a work is best cut: a few a thread, so that no thread waits long for the last one."""
        return 1 if self.threads == 1 else 4 * self.threads

    def run(self, task: Callable[[int, int], Any], cuts: np.ndarray) -> list[Any]:
        """Calls ``task(low, high)`` for the ranges between the cuts and returns what they return, in order."""
        bounds = cuts.tolist()
        if self._pool is None or len(bounds) <= 2:
            return [task(low, high) for low, high in pairwise(bounds)]
        return list(self._pool.map(task, bounds[:-1], bounds[1:]))


def even_cuts(before: np.ndarray, parts: int) -> np.ndarray:
    """Bounds of ranges of about the same work.

    Args:
        before: the work before each thing, and behind the last one.
        parts: how many ranges at most.

    Returns:
        Rising bounds from 0 to the number of things.
    """
    cuts = np.searchsorted(before, np.linspace(0, before[-1], parts + 1)[1:-1])
    return np.unique(np.concatenate(([0], cuts, [before.size - 1])))
