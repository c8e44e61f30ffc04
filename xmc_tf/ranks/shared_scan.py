from collections.abc import Callable
from typing import TypeVar

from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

Found = TypeVar("Found")


class SharedScan:
    """A scan in which each rank scans a part of its host's file, the same on all hosts; all calls are collective."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        hosts = communicator.allgather(communicator.host)
        self._here = [rank for rank, host in enumerate(hosts) if host == communicator.host]

    def each(self, look: Callable[[int, int], Found]) -> list[Found]:
        """Return what ``look`` found in each part; an error on one rank is raised on all."""
        place, count = self._here.index(self._communicator.rank), len(self._here)
        everyones = self._communicator.allgather(run_on_all_ranks(self._communicator, lambda: look(place, count)))
        return [everyones[rank] for rank in self._here]
