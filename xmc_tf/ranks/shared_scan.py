"""Looking through large files by all ranks of a host, so that its disk is read once and not once a rank."""

from collections.abc import Callable
from typing import TypeVar

from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

Found = TypeVar("Found")


class LooksOverRanks:
    """The ranks, each of which looks at a part of what its host has; all hosts look at the whole.

    Example:
        >>> X = load_matrix("X.npz", looks=LooksOverRanks(communicator))

    Args:
        communicator: the ranks; they look together, at files that are known to be the same.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        hosts = communicator.allgather(communicator.host)
        self._here = [rank for rank, host in enumerate(hosts) if host == communicator.host]

    def each(self, look: Callable[[int, int], Found]) -> list[Found]:
        """What is found in all parts; ``InputError`` on all ranks where one finds a fault."""
        place, count = self._here.index(self._communicator.rank), len(self._here)
        everyones = self._communicator.allgather(run_on_all_ranks(self._communicator, lambda: look(place, count)))
        return [everyones[rank] for rank in self._here]
