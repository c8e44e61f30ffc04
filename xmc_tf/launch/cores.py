"""The division of a host's cores among its ranks."""

import itertools
from collections.abc import Mapping, Sequence

# The variables that parallel libraries read at their start.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def divide(cores: Sequence[int], ranks: int) -> list[list[int]]:
    """Return adjacent cores for each rank, in numbers that differ by at most one.

    Example:
        >>> divide(range(5), 2)
        [[0, 1, 2], [3, 4]]

    Args:
        cores: the cores of the host.
        ranks: the number of ranks. If there are more ranks than cores, each rank gets all cores.
    """
    cores = sorted(cores)
    if ranks > len(cores):
        return [cores] * ranks
    few, more = divmod(len(cores), ranks)
    starts = [rank * few + min(rank, more) for rank in range(ranks + 1)]
    return [cores[start:stop] for start, stop in itertools.pairwise(starts)]


def thread_settings(threads: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for this number of threads, except those that the user has set."""
    return {name: str(threads) for name in THREAD_VARIABLES if name not in environment}
