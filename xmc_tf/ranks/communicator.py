"""The interface through which ranks talk to each other, whatever started them."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

import numpy as np

Value = TypeVar("Value")
Operation = Literal["sum", "max", "min"]


class Communicator(Protocol):
    """This process among those that were started together.

    Every call but ``abort`` is made by all ranks, in the same order. Objects travel in a format that cannot run code
    (``common/wire/format.py`` lists the types), arrays as they are, in pieces that stay below what MPI can count
    (``exchange.CHUNK_BYTES``).
    """

    @property
    def rank(self) -> int:
        """This process's number among all, from 0; the global one, whatever the host."""

    @property
    def size(self) -> int:
        """Number of processes."""

    @property
    def local_rank(self) -> int:
        """This process's number among those on its host."""

    @property
    def host(self) -> str:
        """The host's name."""

    def barrier(self) -> None:
        """Returns when all ranks have called it."""

    def broadcast(self, value: Value, root: int = 0) -> Value:
        """Gives every rank the value that ``root`` has; what the others pass does not matter."""

    def gather(self, value: Value, root: int = 0) -> list[Value]:
        """Gives ``root`` every rank's value, in the order of the ranks, and an empty list to the others."""

    def allgather(self, value: Value) -> list[Value]:
        """Gives every rank every rank's value, in the order of the ranks."""

    def scatter(self, values: Sequence[Value] | None, root: int = 0) -> Value:
        """Gives each rank its one of the values that ``root`` has."""

    def alltoall(self, values: Sequence[Value]) -> list[Value]:
        """Sends ``values[r]`` to rank r and gives what each rank has sent here."""

    def broadcast_array(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        """Gives every rank the array that ``root`` has; the others may pass None."""

    def allreduce_array(self, array: np.ndarray, op: Operation = "sum") -> np.ndarray:
        """Gives every rank the sum (largest, smallest) of the ranks' arrays, which have one shape."""

    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        """Gives every rank the rows of all ranks, in the order of the ranks; their numbers may differ."""

    def alltoall_array(
        self, array: np.ndarray, send_counts: np.ndarray | Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sends the first ``send_counts[0]`` rows to rank 0, the next ``send_counts[1]`` to rank 1, and so on.

        Returns:
            The rows that came, in the order of the ranks, and how many came from each.
        """

    def abort(self, code: int = 1) -> None:
        """Ends this process and all others, at once and without their consent."""
