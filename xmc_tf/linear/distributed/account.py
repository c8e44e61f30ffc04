"""What each rank has done, and the table of it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, cast

from xmc_tf.ranks.communicator import Communicator


@dataclass
class Account:
    """One rank's work, added up by its threads.

    Args:
        threads: how many the rank has.
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
        """Counts the time of the block as work.

        Args:
            share: of the rank's threads; None: that of one thread.
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
        """The same ranks; the time that calls among them take is not counted as work."""
        return cast(Communicator, _Watched(communicator, self))

    def solved(self, work: int, written: int) -> None:
        """Counts one sub-problem."""
        with self._lock:
            self.problems += 1
            self.work += work
            self.written += written

    @property
    def elapsed_s(self) -> float:
        """Seconds since the account was opened."""
        return time.monotonic() - self.started

    def summary(self, host: str) -> dict[str, float | int | str]:
        """The figures, as they travel to rank 0."""
        elapsed = self.elapsed_s
        return {
            "host": host, "threads": self.threads, "problems": self.problems, "work": self.work,
            "busy_s": self.busy_s, "waiting_s": max(elapsed - self.busy_s, 0.0), "written": self.written,
            "peak_bytes": max(self.peak_bytes, own_memory()),
        }  # fmt: skip


class _Watched:
    """A communicator whose calls are timed."""

    def __init__(self, communicator: Communicator, account: Account) -> None:
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
    """Bytes that this process holds for itself; files mapped into memory, which the system may drop, left out."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def accounts_table(communicator: Communicator, account: Account) -> str:
    """What every rank has done, a line per rank; empty on all but rank 0."""
    everyone = communicator.gather(account.summary(communicator.host))
    return format_accounts(everyone) if communicator.rank == 0 else ""


def format_accounts(everyone: Sequence[dict[str, float | int | str]]) -> str:
    """The table of the ranks' figures."""
    heads = ["rank", "host", "threads", "sub-problems", "busy s", "waiting s", "own memory, peak", "weights"]
    rows = [
        [
            str(rank), str(one["host"]), str(one["threads"]), f"{one['problems']:,}", f"{one['busy_s']:.1f}",
            f"{one['waiting_s']:.1f}", f"{float(one['peak_bytes']) / 2**20:,.0f} MiB",
            f"{float(one['written']) / 2**20:,.1f} MiB",
        ]
        for rank, one in enumerate(everyone)
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [heads, *rows]]
    return "\n".join(lines)
