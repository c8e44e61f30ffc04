"""Partitions of rows into balanced contiguous ranges, one per rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xmc_tf.ranks.communicator import Communicator


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of rows into one contiguous range per rank: rank r holds ``[bounds[r], bounds[r + 1])``.

    Example:
        >>> partition = Partition(np.array([0, 4, 4, 10]))
        >>> partition.range(2)
        (4, 10)
    """

    bounds: np.ndarray  # [size + 1], ascending from 0 to the number of rows; a range may be empty

    def __post_init__(self) -> None:
        bounds = np.asarray(self.bounds).astype(np.int64)
        bounds.flags.writeable = False
        object.__setattr__(self, "bounds", bounds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and np.array_equal(self.bounds, other.bounds)

    def __hash__(self) -> int:
        return hash(self.bounds.tobytes())

    @property
    def size(self) -> int:
        return len(self.bounds) - 1

    @property
    def rows(self) -> int:
        return int(self.bounds[-1])

    def range(self, rank: int) -> tuple[int, int]:
        """Return the first row of a rank, and the end of its range (exclusive)."""
        return int(self.bounds[rank]), int(self.bounds[rank + 1])


def even_rows(rows: int, size: int) -> Partition:
    """Return a partition into ranges whose lengths differ by at most one row."""
    return Partition(np.array([rows * rank // size for rank in range(size + 1)], dtype=np.int64))


def balanced(
    weights: np.ndarray | Sequence[int], size: int, boundaries: np.ndarray | Sequence[int] | None = None
) -> Partition:
    """Return a partition that minimizes the largest total weight of a range. Within this limit, ranges are nearly even.

    ``weights`` has a nonnegative integer for each row. A range begins at row 0 or at one of the rows ``boundaries``
    (default: any row).
    """
    whole = np.asarray(weights).astype(np.int64)
    rows = len(whole)
    if not whole.any():
        whole = np.ones(rows, dtype=np.int64)
    cuts = np.arange(rows + 1)
    if boundaries is not None:
        cuts = np.union1d(np.asarray(boundaries, dtype=np.int64), [0, rows])
    # The total weight before each possible boundary.
    before = np.zeros(len(cuts), dtype=np.int64)
    if rows:
        np.cumsum(whole if boundaries is None else np.add.reduceat(whole, cuts[:-1]), out=before[1:])
    return Partition(cuts[_spread(before, size, _smallest_limit(before, size))])


def _smallest_limit(before: np.ndarray, size: int) -> int:
    """Return, by bisection, the smallest limit on a range's weight with which ``size`` ranges cover all rows."""
    total = int(before[-1])
    low, high = max(-(-total // size), int(np.diff(before).max(initial=0))), total
    while low < high:
        limit, at = (low + high) // 2, 0
        for _ in range(size):
            at = _reach(before, at, limit)
        low, high = (low, limit) if at + 1 == len(before) else (limit + 1, high)
    return high


def _reach(before: np.ndarray, start: int, limit: int) -> int:
    """Return the last possible end of a range that begins at ``start`` and weighs at most ``limit``."""
    return int(np.searchsorted(before, before[start] + limit, side="right")) - 1


def _spread(before: np.ndarray, size: int, limit: int) -> np.ndarray:
    """Return cuts that keep each range within ``limit`` and that are otherwise as even as possible."""
    # From the right: the earliest row at which each rank may begin if it and the later ranks are to hold the rest.
    earliest = np.zeros(size + 1, dtype=np.int64)
    earliest[size] = len(before) - 1
    for rank in range(size - 1, 0, -1):
        earliest[rank] = np.searchsorted(before, before[earliest[rank + 1]] - limit, side="left")
    cuts = np.zeros(size + 1, dtype=np.int64)
    cuts[size] = len(before) - 1
    total = int(before[-1])
    for rank in range(1, size):
        # An equal share of the remaining weight, so that a huge row does not distort the ranges after it.
        begun = int(before[cuts[rank - 1]])
        ideal = begun + (total - begun) // (size - rank + 1)
        nearest = int(np.searchsorted(before, ideal))
        if nearest and ideal - before[nearest - 1] < before[min(nearest, len(before) - 1)] - ideal:
            nearest -= 1
        # At least one piece while there are any, so that no rank is needlessly idle.
        low, high = max(earliest[rank], cuts[rank - 1] + 1), _reach(before, int(cuts[rank - 1]), limit)
        cuts[rank] = min(max(nearest, low), high)
    return cuts


def equal_rounds(begins: np.ndarray, most: int, communicator: Communicator) -> list[tuple[int, int]]:
    """Split documents into ranges of at most ``most`` entries or of one longer document. All ranks must call this.

    All ranks get the same number of ranges; ranks with fewer get empty ranges at the end.
    """
    ranges, low = [], 0
    while low < len(begins) - 1:
        high = max(low + 1, int(np.searchsorted(begins, begins[low] + most, side="right")) - 1)
        ranges.append((low, high))
        low = high
    count = int(communicator.allreduce_array(np.array([len(ranges)]), "max")[0])
    return ranges + [(low, low)] * (count - len(ranges))
