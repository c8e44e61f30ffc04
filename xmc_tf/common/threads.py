import os

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import MOST_THREADS


def thread_count(threads: int) -> int:
    """Return ``threads``, or the number of cores available to this process if ``threads`` is below 1."""
    if threads < 1:
        return len(usable_cores())
    if threads > MOST_THREADS:
        raise InputError(
            "too many threads", expected=f"at most {MOST_THREADS:,}, or -1 for one per core", received=f"{threads:,}"
        )
    return threads


def usable_cores() -> set[int]:
    """Return the cores available to this process. Systems without affinity limits, such as macOS, report all cores."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
