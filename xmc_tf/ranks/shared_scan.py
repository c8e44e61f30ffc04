from collections.abc import Callable
from typing import TypeVar

from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

Found = TypeVar("Found")


class SharedScan:
    """A scan of a file that all hosts have: on each host, each rank scans a part. All calls are collective."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        hosts = communicator.allgather(communicator.host)
        self._here = [rank for rank, host in enumerate(hosts) if host == communicator.host]

    def map(self, function: Callable[[int, int], Found]) -> list[Found]:
        """Call ``function`` with this rank's part and the number of parts on its host.

        Return the results of all parts, in order. An error on one rank is raised on all.
        """
        place, count = self._here.index(self._communicator.rank), len(self._here)
        everyones = self._communicator.allgather(run_on_all_ranks(self._communicator, lambda: function(place, count)))
        return [everyones[rank] for rank in self._here]
