"""Who looks through a large array: this process all of it, or several processes, each a part."""

from collections.abc import Callable
from typing import Protocol, TypeVar

Found = TypeVar("Found")

# Looked through before others could be told what was found.
_FEW = 1 << 20


class Looks(Protocol):
    """Those who look; in ``xmc_tf.collective`` there are some of many processes."""

    def each(self, look: Callable[[int, int], Found]) -> list[Found]:
        """Has every part looked at by one of them, and gives all of them what was found; fails where one fails.

        Args:
            look: given the number of a part and how many there are.
        """


class _Alone:
    """One process, which has no parts."""

    def each(self, look: Callable[[int, int], Found]) -> list[Found]:
        return [look(0, 1)]


ALONE: Looks = _Alone()


def worth_sharing(looks: Looks, entries: int) -> Looks:
    """Those who look at so many entries."""
    return looks if entries > _FEW else ALONE
