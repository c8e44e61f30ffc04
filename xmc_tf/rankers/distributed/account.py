"""The work of each rank: seconds, sub-problems and memory, and a table of them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, cast

from xmc_tf.ranks.communicator import Communicator


@dataclass
class RankWork:
    """One rank's work, recorded by its threads.

    Args:
        threads: number of threads of the rank.
        problems: number of solved sub-problems.
        work: feature entries that one pass over their labels reads.
        busy_s: seconds of work, as a share of all threads.
        written: bytes of solved blocks.
        peak_bytes: peak of the process's own memory.
        waited_s: seconds in calls to other ranks.
        started: time at which the account was opened.
    """

    threads: int = 1
    problems: int = 0
    work: int = 0
    busy_s: float = 0.0
    written: int = 0
    peak_bytes: int = 0
    waited_s: float = 0.0
    started: float = field(default_factory=time.monotonic)
    _lock: Lock = field(default_factory=Lock, repr=False)

    @contextmanager
    def busy(self, share: float | None = None) -> Iterator[None]:
        """Count the time of the ``with`` block as work.

        Args:
            share: share of the rank's threads that work. Default: one thread.
        """
        begin, waited = time.monotonic(), self.waited_s
        try:
            yield
        finally:
            part = 1 / self.threads if share is None else share
            seconds = (time.monotonic() - begin) * part - (self.waited_s - waited if part == 1 else 0)
            own = own_memory()
            with self._lock:
                self.busy_s += seconds
                self.peak_bytes = max(self.peak_bytes, own)

    def watching(self, communicator: Communicator) -> Communicator:
        """Return the communicator with its calls timed, so that they are not counted as work."""
        return cast(Communicator, _Watched(communicator, self))

    def solved(self, work: int, written: int) -> None:
        """Count one solved sub-problem."""
        with self._lock:
            self.problems += 1
            self.work += work
            self.written += written

    @property
    def elapsed_s(self) -> float:
        """Seconds since the account was opened."""
        return time.monotonic() - self.started

    def summary(self, host: str) -> dict[str, float | int | str]:
        """Return the figures that are sent to rank 0."""
        elapsed = self.elapsed_s
        return {
            "host": host, "threads": self.threads, "problems": self.problems, "work": self.work,
            "busy_s": self.busy_s, "waiting_s": max(elapsed - self.busy_s, 0.0), "written": self.written,
            "peak_bytes": max(self.peak_bytes, own_memory()),
        }  # fmt: skip


class _Watched:
    """A communicator whose calls are timed."""

    def __init__(self, communicator: Communicator, account: RankWork) -> None:
        self._communicator, self._account = communicator, account

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._communicator, name)
        if not callable(found):
            return found

        def timed(*args: Any, **more: Any) -> Any:
            begin = time.monotonic()
            try:
                return found(*args, **more)
            finally:
                self._account.waited_s += time.monotonic() - begin

        return timed


def own_memory() -> int:
    """Return the bytes of this process's own memory, without memory-mapped files, which the system may drop."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def accounts_table(communicator: Communicator, account: RankWork) -> str:
    """Return a table of every rank's work on rank 0, and an empty string on the others."""
    summaries = communicator.gather(account.summary(communicator.host))
    return format_accounts(summaries) if communicator.rank == 0 else ""


def format_accounts(summaries: Sequence[dict[str, float | int | str]]) -> str:
    """Return the table of the ranks' figures, a line per rank."""
    heads = ["rank", "host", "threads", "sub-problems", "busy s", "waiting s", "own memory, peak", "weights"]
    rows = [
        [
            str(rank), str(one["host"]), str(one["threads"]), f"{one['problems']:,}", f"{one['busy_s']:.1f}",
            f"{one['waiting_s']:.1f}", f"{float(one['peak_bytes']) / 2**20:,.0f} MiB",
            f"{float(one['written']) / 2**20:,.1f} MiB",
        ]
        for rank, one in enumerate(summaries)
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [heads, *rows]]
    return "\n".join(lines)
