"""What this process waits in: each collective leaves a mark when it begins and another when it has ended.

Outside of graphs the marks are made in Python. Inside of graphs they are counters in the graph (``graph_marks.py``),
which are read from time to time; a wait is as long as both have stood still with one ahead of the other.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# By name, how many collectives have begun and how many have ended.
Counts = dict[str, tuple[int, int]]


class Marks:
    """The marks of one process. ``kept`` says whether anybody will read those that are in graphs."""

    def __init__(self) -> None:
        self.kept = False
        self._lock = threading.Lock()
        self._calls: dict[int, tuple[str, float]] = {}
        self._next = 0
        self._sources: list[Callable[[], Counts]] = []
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}

    @contextmanager
    def waiting_in(self, name: str) -> Iterator[None]:
        """The block is a collective of that name."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._calls[number] = name, time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._calls[number]

    def as_wait(self, name: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
        """Makes every call of a function a collective of that name."""

        def around(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
            @wraps(function)
            def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
                with self.waiting_in(name):
                    return function(*arguments, **keywords)

            return call

        return around

    def add_source(self, read: Callable[[], Counts]) -> None:
        """Has ``read()`` asked for counts that are kept elsewhere."""
        self._sources.append(read)

    def waits(self) -> dict[str, float]:
        """By name, for how many seconds this process has been in a collective, as far as was seen; the longest first.

        A wait in a graph begins with the call that first sees it, so there have to be some.
        """
        counts = {name: pair for read in self._sources for name, pair in read().items()}
        with self._lock:
            now = time.monotonic()
            for name, pair in counts.items():
                if name not in self._seen or self._seen[name][0] != pair:
                    self._seen[name] = pair, now
            found = {name: now - since for name, ((begun, ended), since) in self._seen.items() if begun > ended}
            for name, since in self._calls.values():
                found[name] = max(found.get(name, 0.0), now - since)
        return dict(sorted(found.items(), key=lambda wait: -wait[1]))


MARKS = Marks()
