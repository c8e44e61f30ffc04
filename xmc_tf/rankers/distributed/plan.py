"""The division of a training into sub-problems, which does not depend on the number of ranks or threads."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from xmc_tf.common.wire import register

# Enough to keep some thousand threads busy until the end; each sub-problem costs a file and a claim.
MOST_SUB_PROBLEMS = 8192
# About a tenth of a second: less is not worth a file.
LEAST_WORK = 1_000_000


@register
class SubProblem(NamedTuple):
    """Neighbouring tasks of one level, solved by one thread into one file.

    Args:
        level: the level.
        first: its first task.
        last: the task after its last one.
        work: number of feature entries that one pass over its labels reads.
    """

    level: int
    first: int
    last: int
    work: int


def cut_into_sub_problems(
    works: Mapping[int, np.ndarray], *, most: int | None = None, least_work: int | None = None
) -> list[SubProblem]:
    """Return sub-problems of about the same work of levels that can be trained at the same time, the largest first.

    A task is never cut, so a level with one wide cluster over all documents has few large sub-problems. They start
    first and run beside all others.

    Example:
        >>> cut_into_sub_problems({0: np.array([9]), 1: np.array([4, 1, 1, 5])}, least_work=5)
        [SubProblem(level=0, first=0, last=1, work=9), SubProblem(level=1, first=0, last=2, work=5), …]

    Args:
        works: work of the tasks of each level.
        most: approximate maximum number of sub-problems.
        least_work: sub-problems with less work are avoided.
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
