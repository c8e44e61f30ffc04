"""Progress of long work: a bar on a terminal, a line every so often elsewhere, nothing under two seconds."""

import sys
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

# Told of every step of every progress, such as those who draw it elsewhere; must be quick.
WATCHERS: "list[Callable[[Progress], None]]" = []


# The rate is that of the last seconds: the first units of most work take longest (compiling, the largest pieces).
_WINDOW_S = 30.0
_STABLE_S = 2.0  # no estimate from less
_SAMPLES_S = 0.25


class Progress:
    """Counts units of work and shows how far it is and when it will end.

    Example:
        >>> with Progress("level 2 of 3", total=256, unit="clusters") as progress:
        ...     progress.add()

    Args:
        title: what is being done.
        total: how many units there are.
        unit: what they are called.
        quiet_s: nothing is shown before that many seconds.
        every_s: seconds between lines where standard error is no terminal.
    """

    def __init__(self, title: str, total: int, unit: str = "", quiet_s: float = 2.0, every_s: float = 15.0) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.done = 0
        self._terminal = sys.stderr.isatty()
        self._every = 0.2 if self._terminal else every_s
        self._start = time.monotonic()
        self._next = self._start + quiet_s
        self._shown = False
        self._samples: deque[tuple[float, int]] = deque()  # (time, units done), the oldest first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown and self._terminal:
            sys.stderr.write("\r\x1b[K")
        if self._shown and kind is None:
            sys.stderr.write(f"{self.title}: {self.done:,} {self.unit} in {_span(self.elapsed)}\n")
        sys.stderr.flush()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @property
    def rate(self) -> float | None:
        """Units per second over the last half minute, or None while there is too little to tell."""
        if not self._samples:
            return None
        start, before = self._samples[0]
        seconds = time.monotonic() - start
        return (self.done - before) / seconds if seconds >= _STABLE_S and self.done > before else None

    @property
    def left_s(self) -> float | None:
        """Estimated seconds to the end, or None before an estimate is possible and when the work is done."""
        if self.done >= self.total or (rate := self.rate) is None:
            return None
        return (self.total - self.done) / rate

    def add(self, count: int = 1) -> None:
        """Count ``count`` more units as done and shows it when it is time to."""
        self.done += count
        now = time.monotonic()
        if not self._samples or now - self._samples[-1][0] >= _SAMPLES_S:
            self._samples.append((now, self.done))
            while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_S:
                self._samples.popleft()
        for watch in WATCHERS:
            watch(self)
        if now >= self._next:
            self._next = now + self._every
            self._shown = True
            self._show()

    def _show(self) -> None:
        share = min(self.done / max(self.total, 1), 1.0)
        seconds, rate = self.left_s, self.rate
        left = "" if seconds is None or rate is None else f", {_rate(rate)} a second, {_span(seconds)} left"
        counts = f"{self.done:,} of {self.total:,} {self.unit}".rstrip()
        if self._terminal:
            bar = "#" * int(30 * share)
            sys.stderr.write(f"\r\x1b[K{self.title} [{bar:<30}] {share:4.0%} {counts}{left}")
        else:
            sys.stderr.write(f"{self.title}: {share:.0%}, {counts}{left}\n")
        sys.stderr.flush()


def _rate(a_second: float) -> str:
    """How many a second, with as many digits as say something."""
    return f"{a_second:,.0f}" if a_second >= 10 else f"{a_second:.2g}"


def _span(seconds: float) -> str:
    """Seconds as a person would say them."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
