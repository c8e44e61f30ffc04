import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import MOST_THREADS

T = TypeVar("T")
R = TypeVar("R")


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


def map_in_order(work: Callable[[T], R], batches: Iterator[T], threads: int) -> Iterator[tuple[T, R]]:
    """Yield each batch and ``work(batch)`` in order; threads process the next ones. ``work`` has to release the GIL."""
    threads = thread_count(threads)
    first = list(islice(batches, 2))
    batches = chain(first, batches)
    if threads == 1 or len(first) < 2:
        for batch in batches:
            yield batch, work(batch)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="texts") as pool:
        waiting: deque = deque()
        try:
            for batch in batches:
                waiting.append((batch, pool.submit(work, batch)))
                if len(waiting) > 2 * threads:
                    done, result = waiting.popleft()
                    yield done, result.result()
            while waiting:
                done, result = waiting.popleft()
                yield done, result.result()
        finally:
            for _, result in waiting:
                result.cancel()
