"""Log messages that show what a command is doing while it prints nothing else. Only commands enable them."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger(__name__)
_FIRST_S, _LONGEST_S = 5.0, 40.0  # time without output before a line; it doubles from line to line


_Activity = tuple[Callable[[float], None], float]  # what logs it, and when it began


class _Silence:
    """The stack of current activities, innermost last, and the time since the last output."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._activities: list[_Activity] = []
        self._watching: threading.Thread | None = None
        self._enabled = False
        self._written = 0.0
        self._pause = _FIRST_S

    def enable(self) -> None:
        self._enabled = True

    def wrote(self) -> None:
        self._written, self._pause = time.monotonic(), _FIRST_S

    def begin(self, say: Callable[[float], None]) -> _Activity:
        one = say, time.monotonic()
        with self._lock:
            if not self._activities:
                self.wrote()  # silence counts from here
            self._activities.append(one)
            if self._enabled and (self._watching is None or not self._watching.is_alive()):
                self._watching = threading.Thread(target=self._watch, name="activity", daemon=True)
                self._watching.start()
        return one

    def end(self, one: _Activity) -> float:
        """Remove an activity, and return its duration in seconds."""
        with self._lock:
            self._activities.remove(one)
        return time.monotonic() - one[1]

    def say_if_due(self, now: float) -> None:
        """Log the innermost activity if nothing has been written for a while."""
        with self._lock:
            if self._activities and now - self._written >= self._pause:
                say, since = self._activities[-1]
                say(now - since)
                self._written, self._pause = now, min(2 * self._pause, _LONGEST_S)

    def _watch(self) -> None:
        while True:
            time.sleep(1.0)
            self.say_if_due(time.monotonic())


_SILENCE = _Silence()
enable, wrote, begin, end = _SILENCE.enable, _SILENCE.wrote, _SILENCE.begin, _SILENCE.end
say_if_due = _SILENCE.say_if_due


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Log that the command is doing ``what`` if the ``with`` block takes long."""
    one = begin(lambda seconds: _LOG.info("%s: %.0f s so far", what, seconds))
    try:
        yield
    finally:
        end(one)
