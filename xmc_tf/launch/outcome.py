"""How the ranks ended, which of them failed first, and how to say it."""

import signal
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

# Apart, since the two come by different ways and may overtake each other: an error is not to be pushed out.
OUTPUT_LINES, ERROR_LINES = 5, 20

# Nothing that another rank does makes a process end by one of these.
_OWN_FAULT = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}


@dataclass
class RankState:
    """What the launcher knows of one rank.

    Args:
        rank: its number.
        host: where it runs.
        pid: of the worker itself.
        cores: those it may use.
        output: the last lines of its standard output.
        errors: the last lines of its standard error.
        last_line_at: when the last of them came.
        status: how it ended, below zero for a signal; None while it runs, or when its agent was lost.
        ended_at: when that was known; None while it runs.
        stopped: whether it was told to stop before it ended.
    """

    rank: int
    host: str
    pid: int
    cores: list[int]
    last_line_at: float
    output: deque[str] = field(default_factory=lambda: deque(maxlen=OUTPUT_LINES))
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=ERROR_LINES))
    status: int | None = None
    ended_at: float | None = None
    stopped: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended, of itself, with something else than 0."""
        return self.ended_at is not None and self.status != 0 and not self.stopped

    @property
    def exit_code(self) -> int:
        """Its status as a shell would give it; 1 where it was lost."""
        if self.status is None:
            return 1
        return 128 - self.status if self.status < 0 else self.status

    def describe(self, siblings: bool = False) -> str:
        """One sentence, and the last lines; ``siblings`` says that there were others, who have been stopped."""
        who = f"rank {self.rank} (pid {self.pid} on {self.host})"
        if self.status is None:
            what = "was lost: its host went away, or what watches over it was killed"
        elif self.status < 0:
            number = signal.Signals(-self.status)
            what = f"was ended by signal {-self.status} ({number.name})"
            if number == signal.SIGKILL:
                what += "; if nobody killed it, its host was out of memory"
        else:
            what = f"ended with exit status {self.status}"
        what += ". The others were stopped" if siblings else ""
        if not self.output and not self.errors:
            return f"{who} {what}. It had said nothing"
        lines = "\n".join(f"    {line}" for line in [*self.output, *self.errors])
        return f"{who} {what}. Its last lines:\n{lines}"


def first_failure(ranks: Iterable[RankState]) -> RankState | None:
    """Return the rank that failed and not just followed another one that did.

    Who ends first is no sure sign: a process that raises takes its time to end, and on its way tells the others, who
    may be quicker. It is the one that complained first.
    """

    def order(state: RankState) -> tuple[bool, float]:
        killed = state.status is not None and -state.status in _OWN_FAULT
        return not killed, state.ended_at or 0.0 if killed or state.status is None else state.last_line_at

    return min((state for state in ranks if state.failed), key=order, default=None)
