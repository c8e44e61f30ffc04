"""How many threads a number of threads means."""

import os

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import MOST_THREADS


def thread_count(threads: int) -> int:
    """Return the number itself; below 1, one thread for each core that this process may use."""
    if threads < 1:
        return len(os.sched_getaffinity(0))
    if threads > MOST_THREADS:
        raise InputError(
            "too many threads", expected=f"at most {MOST_THREADS:,}, or -1 for one per core", received=f"{threads:,}"
        )
    return threads
