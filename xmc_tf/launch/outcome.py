"""How each rank of a run ended, and which one failed first."""

import signal
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

# Separate limits, so that output does not push errors out.
OUTPUT_LINES, ERROR_LINES = 5, 20

# The failure of another rank never ends a process by one of these signals.
_NEVER_CONSEQUENCES = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}


@dataclass
class RankState:
    """The state of a rank, as known to the launcher."""

    rank: int
    host: str
    pid: int
    last_line_at: float  # times are those of time.monotonic
    output: deque[str] = field(default_factory=lambda: deque(maxlen=OUTPUT_LINES))
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=ERROR_LINES))
    status: int | None = None  # negative for a signal; None while it runs, or if its node was lost
    ended_at: float | None = None
    stopped: bool = False  # before it ended

    @property
    def failed(self) -> bool:
        """Whether the rank ended with an error of its own, without being stopped."""
        return self.ended_at is not None and self.status != 0 and not self.stopped

    @property
    def exit_code(self) -> int:
        """The exit status of the rank in a shell; 1 if it was lost."""
        if self.status is None:
            return 1
        return 128 - self.status if self.status < 0 else self.status

    def describe(self, siblings: bool = False) -> str:
        """Return how it ended, and its last lines; ``siblings`` mentions that other ranks were stopped."""
        who = f"rank {self.rank} (pid {self.pid} on {self.host})"
        if self.status is None:
            what = "was lost: its host is unreachable, or the node process there was killed"
        elif self.status < 0:
            number = signal.Signals(-self.status)
            what = f"was ended by signal {-self.status} ({number.name})"
            if number == signal.SIGKILL:
                what += "; if nobody killed it, its host was out of memory"
        else:
            what = f"ended with exit status {self.status}"
        what += ". The others were stopped" if siblings else ""
        if not self.output and not self.errors:
            return f"{who} {what}. It had no output"
        lines = "\n".join(f"    {line}" for line in [*self.output, *self.errors])
        return f"{who} {what}. Its last lines:\n{lines}"


def first_failure(ranks: Iterable[RankState]) -> RankState | None:
    """Return the rank whose failure caused the others.

    The first rank to end need not be the cause: a process that raises an error takes time to end, and other ranks may
    end sooner because of it. A rank killed by a signal is the cause, or else the one whose last line came first.
    """

    def order(state: RankState) -> tuple[bool, float]:
        killed = state.status is not None and -state.status in _NEVER_CONSEQUENCES
        return not killed, state.ended_at or 0.0 if killed or state.status is None else state.last_line_at

    return min((state for state in ranks if state.failed), key=order, default=None)
