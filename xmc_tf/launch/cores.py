"""Cores of a host divided among its ranks, so that they do not get into each other's way."""

import itertools
import os
from collections.abc import Mapping, Sequence

# What each library that computes in parallel reads at its start.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def divide(cores: Sequence[int], ranks: int) -> list[list[int]]:
    """Neighbouring cores for each rank, as many for one as for another or one more.

    Example:
        >>> divide(range(5), 2)
        [[0, 1, 2], [3, 4]]

    Args:
        cores: what there is.
        ranks: how many share it. If there are more ranks than cores, they all get all of them.
    """
    cores = sorted(cores)
    if ranks > len(cores):
        return [cores] * ranks
    few, more = divmod(len(cores), ranks)
    starts = [rank * few + min(rank, more) for rank in range(ranks + 1)]
    return [cores[start:stop] for start, stop in itertools.pairwise(starts)]


def thread_settings(threads: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that give libraries so many threads; one that the user has set is left alone."""
    return {name: str(threads) for name in THREAD_VARIABLES if name not in environment}


def take_share(local_rank: int, local_size: int, threads: int | None, pin: bool) -> dict[str, str]:
    """Confine this process, and what it starts, to its share of the host.

    Args:
        local_rank: this rank's number on the host.
        local_size: number of ranks on the host.
        threads: the number of threads; one for each core of the share if not given.
        pin: whether other cores are out of reach.

    Returns:
        Variables for the environment of what is started.
    """
    available = sorted(os.sched_getaffinity(0))
    mine = divide(available, local_size)[local_rank]
    if pin:
        os.sched_setaffinity(0, mine)
    alone = local_size <= len(available)
    return thread_settings(threads or (len(mine) if alone else 1), os.environ)
