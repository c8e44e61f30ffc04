import sys
import time
from collections import deque
from typing import Self

from xmc_tf.common import activity
from xmc_tf.common.process.terminal import printable

# The rate is that of the last seconds, because the first units usually take longest (compiling, large pieces).
_WINDOW_S = 30.0
_STABLE_S = 2.0  # no estimate from a shorter time
_SAMPLES_S = 0.25


class Progress:
    """A progress bar on a terminal; elsewhere, a line every ``every_s`` seconds. Starts after ``quiet_s`` seconds."""

    def __init__(self, title: str, total: int, unit: str = "", quiet_s: float = 2.0, every_s: float = 15.0) -> None:
        self.title, self.total, self.unit = printable(title), total, unit
        self.done = 0
        # A notebook shows a line again after "\r", but does not know the sequence that erases one.
        self._notebook = "ipykernel" in sys.modules
        self._terminal = sys.stderr.isatty() or self._notebook
        self._width = 0  # of the line in a notebook
        self._every = 0.2 if self._terminal else every_s
        self._start = time.monotonic()
        self._next = self._start + quiet_s
        self._shown = False
        self._samples: deque[tuple[float, int]] = deque()  # (time, units done), the oldest first

    def __enter__(self) -> Self:
        self._activity = activity.begin(self._say)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        activity.end(self._activity)
        if self._shown and self._terminal:
            sys.stderr.write(self._erase())
        if self._shown and kind is None:
            unit = self.unit.removesuffix("s") if self.done == 1 else self.unit
            sys.stderr.write(f"{self.title}: {self.done:,} {unit} in {span(self.elapsed)}\n")
        sys.stderr.flush()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    @property
    def rate(self) -> float | None:
        """Units per second over the last 30 seconds, or None if it is too early for an estimate."""
        if not self._samples:
            return None
        start, before = self._samples[0]
        seconds = time.monotonic() - start
        return (self.done - before) / seconds if seconds >= _STABLE_S and self.done > before else None

    @property
    def left_s(self) -> float | None:
        """The estimated remaining seconds, or None if it is too early for an estimate or the work is done."""
        if self.done >= self.total or (rate := self.rate) is None:
            return None
        return (self.total - self.done) / rate

    def add(self, count: int = 1) -> None:
        self.done += count
        now = time.monotonic()
        if not self._samples or now - self._samples[-1][0] >= _SAMPLES_S:
            self._samples.append((now, self.done))
            while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_S:
                self._samples.popleft()
        if now >= self._next:
            self._next = now + self._every
            self._shown = True
            self._show()

    def _show(self) -> None:
        share = min(self.done / max(self.total, 1), 1.0)
        seconds, rate = self.left_s, self.rate
        left = ""
        if seconds is not None and rate is not None:
            left = f", {f'{rate:,.0f}' if rate >= 10 else f'{rate:.2g}'}/s, {span(seconds)} left"
        counts = f"{self.done:,} of {self.total:,} {self.unit}".rstrip()
        if self._terminal:
            bar = "#" * int(30 * share)
            line = f"{self.title} [{bar:<30}] {share:4.0%} {counts}{left}"
            sys.stderr.write(f"{self._erase()}{line}")
            self._width = len(line)
        else:
            sys.stderr.write(f"{self.title}: {share:.0%}, {counts}{left}\n")
        sys.stderr.flush()
        activity.wrote()

    def _erase(self) -> str:
        return f"\r{' ' * self._width}\r" if self._notebook else "\r\x1b[K"

    def _say(self, _: float) -> None:
        """Print progress while one unit takes long, unless a terminal already shows the bar."""
        if not (self._shown and self._terminal):
            self._shown = True
            self._show()


def span(seconds: float) -> str:
    """Return a measured time with a readable unit."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def duration(seconds: float) -> str:
    """Return an estimated time with a readable unit."""
    if seconds >= 48 * 3600:
        return f"{seconds / 86400:,.1f} days"
    if seconds >= 5400:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:,.0f} min" if seconds >= 120 else f"{max(seconds, 1):,.0f} s"
