"""How many threads a number of threads means."""

import os


def thread_count(threads: int) -> int:
    """The number itself; below 1, one a core that this process may use."""
    return len(os.sched_getaffinity(0)) if threads < 1 else threads
