"""Scans of large arrays: by this process, or shared by several processes that scan a part each."""

from collections.abc import Callable
from typing import Protocol, TypeVar

Found = TypeVar("Found")

# Scanning so few entries takes less time than telling the other processes the result.
FEW = 1 << 20


class Scan(Protocol):
    """A way to scan an array; ``xmc_tf.ranks.shared_scan`` has the one for several processes."""

    def each(self, look: Callable[[int, int], Found]) -> list[Found]:
        """Return what ``look`` found in each part; every process gets all results, and fails if one fails.

        Args:
            look: called with the number of a part and the number of parts.
        """


class _Alone:
    """A scan by one process, as one part."""

    def each(self, look: Callable[[int, int], Found]) -> list[Found]:
        return [look(0, 1)]


ALONE: Scan = _Alone()


def worth_sharing(scan: Scan, entries: int) -> Scan:
    """Return the scan for an array with so many entries: a short one is not shared."""
    return scan if entries > FEW else ALONE
