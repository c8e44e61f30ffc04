"""The team that solves a wide task: its members' documents and rows, and how they sum and gather tables.

The documents are split into parts, and the rows of the task's tables into as many blocks; each member has the same
number of both. The number of members, a power of two, changes no bit of a sum: tables are added as a tree whose leaves
are the parts, and the sum of one member's parts is a branch of it; small sums are added part by part.

There are two operations. Both take as many steps as the binary logarithm of the number of members, and send and receive
less than one table: :meth:`Team.gather` doubles the known rows with each partner, :meth:`Team.reduce` halves the rows
that remain to be added.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from xmc_tf.linear.wide.solver import State


class Team(ABC):
    """One member's view of its team. All members make the same calls in the same order.

    Args:
        parts: number of parts of the documents, a power of two.
        members: number of members, a power of two that is not larger.
        number: number of this member.
    """

    def __init__(self, parts: int, members: int, number: int) -> None:
        self.parts, self.members, self.number = parts, members, number

    @property
    def own_parts(self) -> range:
        """Parts of the problem that this member has."""
        return range(self.number, self.parts, self.members)

    def blocks(self, size: int) -> np.ndarray:
        """Return the bounds of the blocks of a table with ``size`` rows."""
        return np.arange(self.parts + 1) * size // self.parts

    def bounds(self, size: int) -> list[int]:
        """Return the bounds of the members' rows, which are neighbouring blocks."""
        return self.blocks(size)[:: self.parts // self.members].tolist()

    @abstractmethod
    def swap(self, other: int, outgoing: np.ndarray, incoming: np.ndarray) -> None:
        """Send an array to another member and receive one; both are contiguous."""

    def gather(self, table: np.ndarray) -> None:
        """Fill in the other members' rows of a table."""
        bounds, width = self.bounds(len(table)), 1
        while width < self.members:
            mine, other = self.number & -width, self.number ^ width
            theirs = other & -width
            self.swap(
                other,
                table[bounds[mine] : bounds[mine + width]],
                table[bounds[theirs] : bounds[theirs + width]],
            )
            width *= 2

    def reduce(self, table: np.ndarray) -> None:
        """Add the other members' tables to the own rows of a table; its other rows are lost."""
        bounds, first, width = self.bounds(len(table)), 0, self.members // 2
        while width:
            other, first = self.number ^ width, self.number & -width
            theirs = other & -width
            mine = table[bounds[first] : bounds[first + width]]
            incoming = np.empty_like(mine)
            self.swap(other, table[bounds[theirs] : bounds[theirs + width]], incoming)
            mine += incoming
            width //= 2

    def add_tables(
        self,
        table_of: Callable[[int], np.ndarray],
        out: np.ndarray,
        done: Callable[[np.ndarray], object] = lambda table: None,
    ) -> None:
        """Add all parts' tables.

        Args:
            table_of: returns the table of one of the own parts, which is overwritten.
            out: receives the own rows of the sum, in its first columns.
            done: called with each table that is no longer needed.
        """
        table = self._branch(table_of, done, self.number, self.members)
        self.reduce(table)
        bounds = self.bounds(len(table))
        out[:, : table.shape[1]] = table[bounds[self.number] : bounds[self.number + 1]]
        done(table)

    def _branch(
        self, table_of: Callable[[int], np.ndarray], done: Callable[[np.ndarray], object], part: int, step: int
    ) -> np.ndarray:
        """Return the sum of every ``step``-th part from ``part`` on: the sum of two sums with twice the step."""
        if step >= self.parts:
            return table_of(part)
        table = self._branch(table_of, done, part, 2 * step)
        rest = self._branch(table_of, done, part + step, 2 * step)
        table += rest
        done(rest)
        return table

    def add_of_parts(self, own: list[np.ndarray]) -> np.ndarray:
        """Return the sum of small arrays, one per part, in the order of the parts; each member passes its own."""
        return add_in_order(self._of_all_members(own).swapaxes(0, 1))

    def add_of_blocks(self, own: list[np.ndarray]) -> np.ndarray:
        """Return the sum of small arrays, one per block, in the order of the blocks; each member passes its own."""
        return add_in_order(self._of_all_members(own))

    def _of_all_members(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Return the arrays of all members: members × arrays of a member × shape of an array."""
        own = np.stack(arrays)
        table = np.empty((self.parts, *own.shape[1:]), own.dtype)
        bounds = self.bounds(self.parts)
        table[bounds[self.number] : bounds[self.number + 1]] = own
        self.gather(table)
        return table.reshape(self.members, len(arrays), *own.shape[1:])

    def resume(self, name: str, state: State) -> None:  # noqa: B027
        """Load the state that an earlier run saved, if teams of this kind save states."""

    def keep(self, name: str, state: State) -> None:  # noqa: B027
        """Save a state, if teams of this kind do so."""


class Alone(Team):
    """A team of one.

    Args:
        parts: number of parts of the documents.
    """

    def __init__(self, parts: int) -> None:
        super().__init__(parts, 1, 0)

    def swap(self, other: int, outgoing: np.ndarray, incoming: np.ndarray) -> None:
        """Raise an error: there is no other member."""
        raise AssertionError("a team of one has no other member")


def add_in_order(arrays: np.ndarray) -> np.ndarray:
    """Return the sum over the first two axes, added from the first to the last."""
    arrays = arrays.reshape(-1, *arrays.shape[2:])
    out = arrays[0].copy()
    for one in arrays[1:]:
        out += one
    return out


def largest_power_of_two(most: int) -> int:
    """Return the largest power of two that is not above a number.

    Example:
        >>> largest_power_of_two(12)
        8
    """
    return 1 << (most.bit_length() - 1)
