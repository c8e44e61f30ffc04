"""Those who solve a wide task together: who has which documents and which rows, and how they add up and hand out.

The documents are dealt into parts, and the rows of the task's tables are cut into as many blocks; a member has the same
number of both. How many members there are, a power of two, changes no bit of a sum: tables are added as a tree whose
leaves are the parts, and what a member adds up alone is a branch of it; small sums are added part by part.

Two moves do all of it, in as many steps as a knock-out tournament has rounds, and a member sends and receives less
than one table in each: :meth:`Team.gather` doubles what it knows with every partner, :meth:`Team.reduce` halves what it
still has to add up.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from xmc_tf.linear.wide.solver import State


class Team(ABC):
    """One member's view of its team. All members make the same calls in the same order.

    Args:
        parts: into how many the documents are dealt, a power of two.
        members: how many share them, a power of two that is not larger.
        number: of this member.
    """

    def __init__(self, parts: int, members: int, number: int) -> None:
        self.parts, self.members, self.number = parts, members, number

    @property
    def mine(self) -> range:
        """This member's parts."""
        return range(self.number, self.parts, self.members)

    def blocks(self, size: int) -> np.ndarray:
        """Where the blocks of a table of so many rows begin and end."""
        return np.arange(self.parts + 1) * size // self.parts

    def bounds(self, size: int) -> list[int]:
        """Where the members' rows begin and end, which are neighbouring blocks."""
        return self.blocks(size)[:: self.parts // self.members].tolist()

    @abstractmethod
    def swap(self, other: int, outgoing: np.ndarray, incoming: np.ndarray) -> None:
        """Sends an array to another member and fills one with what that one sends; both are contiguous."""

    def gather(self, table: np.ndarray) -> None:
        """Fills the other members' rows of a table."""
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
        """Adds the other members' tables to the own rows of one; its other rows are lost."""
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
        """Adds all parts' tables.

        Args:
            table_of: makes the table of one of the own parts; it is overwritten.
            out: receives the own rows of the sum, in its first columns.
            done: called with each table that is not needed any more.
        """
        table = self._branch(table_of, done, self.number, self.members)
        self.reduce(table)
        bounds = self.bounds(len(table))
        out[:, : table.shape[1]] = table[bounds[self.number] : bounds[self.number + 1]]
        done(table)

    def _branch(
        self, table_of: Callable[[int], np.ndarray], done: Callable[[np.ndarray], object], part: int, step: int
    ) -> np.ndarray:
        """The sum of every so many parts from one on: that of every other of them and that of the rest."""
        if step >= self.parts:
            return table_of(part)
        table = self._branch(table_of, done, part, 2 * step)
        rest = self._branch(table_of, done, part + step, 2 * step)
        table += rest
        done(rest)
        return table

    def add_of_parts(self, mine: list[np.ndarray]) -> np.ndarray:
        """The sum of small arrays, one a part, in the order of the parts; every member gives its own."""
        return add_in_order(self._everybodys(mine).swapaxes(0, 1))

    def add_of_blocks(self, mine: list[np.ndarray]) -> np.ndarray:
        """The sum of small arrays, one a block, in the order of the blocks; every member gives its own."""
        return add_in_order(self._everybodys(mine))

    def _everybodys(self, mine: list[np.ndarray]) -> np.ndarray:
        own = np.stack(mine)
        table = np.empty((self.parts, *own.shape[1:]), own.dtype)
        bounds = self.bounds(self.parts)
        table[bounds[self.number] : bounds[self.number + 1]] = own
        self.gather(table)
        return table.reshape(self.members, len(mine), *own.shape[1:])

    def resume(self, name: str, state: State) -> None:  # noqa: B027
        """Brings a state to where an earlier run has left it, where there is something that outlives a process."""

    def keep(self, name: str, state: State) -> None:  # noqa: B027
        """Remembers a state, likewise."""


class Alone(Team):
    """A team of one.

    Args:
        parts: into how many the documents are dealt.
    """

    def __init__(self, parts: int) -> None:
        super().__init__(parts, 1, 0)

    def swap(self, other: int, outgoing: np.ndarray, incoming: np.ndarray) -> None:
        """There is nobody."""
        raise AssertionError("a team of one has no other member")


def add_in_order(arrays: np.ndarray) -> np.ndarray:
    """The sum over the first two axes, from the first to the last."""
    arrays = arrays.reshape(-1, *arrays.shape[2:])
    out = arrays[0].copy()
    for one in arrays[1:]:
        out += one
    return out


def largest_power_of_two(most: int) -> int:
    """The largest power of two that is not above a number.

    Example:
        >>> largest_power_of_two(12)
        8
    """
    return 1 << (most.bit_length() - 1)
