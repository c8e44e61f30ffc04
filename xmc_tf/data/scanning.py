"""Scans of large arrays, by this process or shared by several processes."""

from collections.abc import Callable
from typing import Protocol, TypeVar

Found = TypeVar("Found")

# Scanning so few entries takes less time than telling the other processes the result.
FEW = 1 << 20


class Scan(Protocol):
    """A way to scan an array in parts; see also ``xmc_tf.ranks.shared_scan``."""

    def each(self, look: Callable[[int, int], Found]) -> list[Found]:
        """Return ``look(part, parts)`` of each part; every process gets all results, and fails if one fails."""


class _Alone:
    """A scan of one part, by this process."""

    def each(self, look: Callable[[int, int], Found]) -> list[Found]:
        return [look(0, 1)]


ALONE: Scan = _Alone()


def worth_sharing(scan: Scan, entries: int) -> Scan:
    """Return ``scan`` for long arrays, and ``ALONE`` for short ones."""
    return scan if entries > FEW else ALONE
