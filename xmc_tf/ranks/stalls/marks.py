"""Records of the collectives in which this process waits. Graphs count the collectives that have begun and ended."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# By name, the numbers of collectives that have begun and that have ended.
Counts = dict[str, tuple[int, int]]


class Marks:
    """The collectives in which this process waits. If ``kept`` is True, graphs should record theirs too."""

    def __init__(self) -> None:
        self.kept = False
        self._lock = threading.Lock()
        self._calls: dict[int, tuple[str, float]] = {}
        self._next = 0
        self._sources: list[Callable[[], Counts]] = []
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}

    @contextmanager
    def waiting_in(self, name: str) -> Iterator[None]:
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._calls[number] = name, time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._calls[number]

    def as_wait(self, name: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
        def around(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
            @wraps(function)
            def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
                with self.waiting_in(name):
                    return function(*arguments, **keywords)

            return call

        return around

    def add_source(self, read: Callable[[], Counts]) -> None:
        self._sources.append(read)

    def waits(self) -> dict[str, float]:
        """Return the seconds in each unfinished collective, longest first; in graphs, since a call first saw it."""
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
