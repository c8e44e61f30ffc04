"""A team of threads of one process, for a task that is too wide for one of them."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Barrier

import numpy as np

from xmc_tf.common.threads import thread_count
from xmc_tf.linear.kernels.emit import Columns
from xmc_tf.linear.problems import LevelProblem
from xmc_tf.linear.tasks import Instances
from xmc_tf.linear.wide.parts import solve_wide
from xmc_tf.linear.wide.team import Team, largest_power_of_two


class _Meeting:
    """The arrays that the members of a team exchange, and the barriers of each pair."""

    def __init__(self, members: int) -> None:
        self.shown: list[np.ndarray] = [np.zeros(0)] * members
        pairs = [(low, high) for high in range(members) for low in range(high)]
        self.barriers = {pair: Barrier(2) for pair in pairs}

    def end(self) -> None:
        """Release all waiting members with an error."""
        for barrier in self.barriers.values():
            barrier.abort()


class _Member(Team):
    """One thread of a team."""

    def __init__(self, meeting: _Meeting, parts: int, number: int) -> None:
        super().__init__(parts, len(meeting.shown), number)
        self._meeting = meeting

    def swap(self, other: int, outgoing: np.ndarray, incoming: np.ndarray) -> None:
        """Copy the array that the other member shows."""
        barrier = self._meeting.barriers[min(self.number, other), max(self.number, other)]
        self._meeting.shown[self.number] = outgoing
        barrier.wait()
        incoming[:] = self._meeting.shown[other]
        barrier.wait()


def solve_by_threads(
    instances: Instances, problem: LevelProblem, cluster: int, labels: np.ndarray, parts: int, threads: int
) -> Columns:
    """Solve a wide task with up to one thread per part; the result does not depend on their number."""
    members = largest_power_of_two(min(parts, thread_count(threads)))
    meeting = _Meeting(members)

    def solve(number: int) -> Columns:
        try:
            return solve_wide(instances, problem, cluster, labels, _Member(meeting, parts, number))
        except BaseException:
            meeting.end()
            raise

    with ThreadPoolExecutor(members) as pool:
        futures = [pool.submit(solve, number) for number in range(members)]
        for future in as_completed(futures):
            future.result()
        return futures[0].result()
