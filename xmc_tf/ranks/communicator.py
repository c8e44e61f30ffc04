"""The interface through which the ranks of a run communicate."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

import numpy as np

Value = TypeVar("Value")
Operation = Literal["sum", "max", "min"]


class Communicator(Protocol):
    """A rank of a run, and its collective operations.

    All methods except ``abort`` are collective: all ranks must call them, in the same order. Objects are sent in a
    format that cannot run code (``common/wire.py`` lists the types). Arrays are sent without conversion, in
    messages of at most ``exchange.CHUNK_BYTES``, because MPI counts in 32 bits.
    """

    @property
    def rank(self) -> int:
        """The number of this process among all ranks, from 0."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    @property
    def local_rank(self) -> int:
        """The number of this process among the ranks on its host, from 0."""

    @property
    def host(self) -> str:
        """The name of this host."""

    def barrier(self) -> None:
        """Wait until all ranks have called this method."""

    def broadcast(self, value: Value, root: int = 0) -> Value:
        """Return the value of rank ``root`` on every rank; the values of the other ranks are ignored."""

    def gather(self, value: Value, root: int = 0) -> list[Value]:
        """Return the values of all ranks, in rank order, on rank ``root``, and an empty list on the others."""

    def allgather(self, value: Value) -> list[Value]:
        """Return the values of all ranks, in rank order, on every rank."""

    def scatter(self, values: Sequence[Value] | None, root: int = 0) -> Value:
        """Return ``values[r]`` of rank ``root`` on each rank r; the other ranks may pass None."""

    def alltoall(self, values: Sequence[Value]) -> list[Value]:
        """Send ``values[r]`` to each rank r, and return the values received, in rank order."""

    def broadcast_array(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        """Return the array of rank ``root`` on every rank; the other ranks may pass None."""

    def allreduce_array(self, array: np.ndarray, op: Operation = "sum") -> np.ndarray:
        """Return the elementwise sum, maximum or minimum of the ranks' arrays, which must have the same shape."""

    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        """Return the rows of all ranks, in rank order, on every rank; ranks may have different numbers of rows."""

    def alltoall_array(
        self, array: np.ndarray, send_counts: np.ndarray | Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Send the first ``send_counts[0]`` rows to rank 0, the next ``send_counts[1]`` to rank 1, and so on.

        Returns:
            The rows received, in rank order, and the number of rows received from each rank.
        """

    def abort(self, code: int = 1) -> None:
        """End all ranks immediately, without their cooperation."""
