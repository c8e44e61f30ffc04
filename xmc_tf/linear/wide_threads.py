"""A team of threads of one process, for a task that is too wide for one of them."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Barrier

import numpy as np

from xmc_tf.common.threads import thread_count
from xmc_tf.linear.kernels.emit import Columns
from xmc_tf.linear.problems import LevelProblem
from xmc_tf.linear.tasks import Instances
from xmc_tf.linear.wide import State
from xmc_tf.linear.wide_parts import solve_wide


class _Table:
    """Where the members lay their parts for all to see."""

    def __init__(self, parts: int, members: int) -> None:
        self.laid: list[np.ndarray] = [np.zeros(0)] * parts
        self.sums: list[np.ndarray] = [np.zeros(0)] * members
        self.barrier = Barrier(members)


class _Member:
    """One thread of a team; see :class:`~xmc_tf.linear.wide_parts.Team`."""

    def __init__(self, table: _Table, number: int) -> None:
        self._table, self._number, self._members = table, number, len(table.sums)
        self.parts, self.first = len(table.laid), number == 0
        self.mine = range(number, self.parts, self._members)

    def total(self, of_parts: list[np.ndarray]) -> np.ndarray:
        """Each adds a slice of all parts, in their order."""
        table = self._table
        for part, array in zip(self.mine, of_parts, strict=True):
            table.laid[part] = array
        table.barrier.wait()
        mine = [np.array_split(one, self._members)[self._number] for one in table.laid]
        table.sums[self._number] = add_in_order(mine)
        table.barrier.wait()
        return np.concatenate(table.sums)

    def resume(self, name: str, state: State) -> None:
        """What one process has begun is lost with it."""

    def keep(self, name: str, state: State) -> None:
        """What one process has begun is lost with it."""


def add_in_order(arrays: list[np.ndarray]) -> np.ndarray:
    """The sum of arrays, from the first to the last."""
    out = arrays[0].copy()
    for one in arrays[1:]:
        out += one
    return out


def solve_by_threads(
    instances: Instances, problem: LevelProblem, cluster: int, labels: np.ndarray, parts: int, threads: int
) -> Columns:
    """Solves a wide task by as many threads as have parts to do; the result does not depend on how many."""
    members = min(parts, thread_count(threads))
    table = _Table(parts, members)

    def solve(number: int) -> Columns:
        try:
            return solve_wide(instances, problem, cluster, labels, _Member(table, number))
        except BaseException:
            table.barrier.abort()
            raise

    with ThreadPoolExecutor(members) as pool:
        futures = [pool.submit(solve, number) for number in range(members)]
        for future in as_completed(futures):
            future.result()
        return futures[0].result()
