"""How the work of a training is cut into sub-problems, which does not depend on who will do it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xmc_tf.common.wire.format import register

# Enough to keep some thousand threads busy to the end; each costs a file and a claim.
MOST_SUB_PROBLEMS = 8192
# About a tenth of a second: less is not worth a file of its own.
LEAST_WORK = 1_000_000
# Where a team can be made, no thread does more than this part of an even share (less costs more sums than it gains),
# and none has more work than this, of which half are entries that it holds: some 30 GB.
_TEAM_SHARE, _MEMBER_WORK = 0.5, 4_000_000_000


@register
class SubProblem(NamedTuple):
    """Neighbouring tasks of one level, solved by one thread into one file.

    Args:
        level: the level.
        first: its first task.
        last: the one behind its last task.
        work: the entries that its tasks touch in one pass over their labels.
    """

    level: int
    first: int
    last: int
    work: int


def cut_into_sub_problems(
    works: Mapping[int, np.ndarray], *, most: int | None = None, least_work: int | None = None
) -> list[SubProblem]:
    """Cuts levels that can be trained at the same time into sub-problems of about the same work, the largest first.

    A task is never cut, so that a level with one wide cluster over all documents gives few large ones: taken first,
    they run beside all others.

    Example:
        >>> cut_into_sub_problems({0: np.array([9]), 1: np.array([4, 1, 1, 5])}, least_work=5)
        [SubProblem(level=0, first=0, last=1, work=9), SubProblem(level=1, first=0, last=2, work=5), …]

    Args:
        works: the work of the tasks of each level.
        most: about how many sub-problems there may be.
        least_work: none is smaller than that without need.
    """
    total = sum(int(work.sum()) for work in works.values())
    target = max(1, LEAST_WORK if least_work is None else least_work, total // (most or MOST_SUB_PROBLEMS))
    found = []
    for level, work in works.items():
        if len(work) == 0:
            continue
        before = np.concatenate(([0], np.cumsum(work, dtype=np.int64)))
        starts = np.flatnonzero(np.diff(before[:-1] // target, prepend=-1))
        for first, last in zip(starts, [*starts[1:], len(work)], strict=True):
            found.append(SubProblem(int(level), int(first), int(last), int(before[last] - before[first])))
    return sorted(found, key=lambda one: (-one.work, one.level, one.first))


def teams(works: Sequence[int], parts: Sequence[int], total: int, threads: int) -> list[range]:
    """Which threads of all ranks solve each wide sub-problem: as few as make it small beside an even share, in turn.

    Example:
        >>> teams([40, 20, 9], [8, 8, 8], 200, 10)
        [range(0, 4), range(4, 6), range(6, 7)]

    Args:
        works: of each, in the order of the plan.
        parts: of each: no more can share it.
        total: the work of all sub-problems.
        threads: of all ranks.

    Returns:
        Threads, to be taken modulo their number; a power of two of them each.
    """
    found, start, most_work = [], 0, min(_TEAM_SHARE * total / threads, _MEMBER_WORK)
    for work, most in zip(works, parts, strict=True):
        members = 1
        while 2 * members <= min(most, threads) and work > most_work * members:
            members *= 2
        found.append(range(start, start + members))
        start = (start + members) % threads
    return found
