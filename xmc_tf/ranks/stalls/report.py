"""The state of a waiting rank, and the report of a stall."""

import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xmc_tf.ranks.stalls.marks import MARKS

_MOST_RANKS, _MOST_WAITS = 16, 3
# Code whose callers say more about where the program is.
_PACKAGE = Path(__file__).resolve().parents[2]
_GENERATED = "__autograph_generated_file"
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class State:
    """The state of a rank, as reported to the ranks that wait for it."""

    rank: int
    pid: int
    host: str
    waits: dict[str, float] = field(default_factory=dict)  # seconds in each collective, the longest first
    place: str = ""  # its current line of the program
    silence: str = ""  # the reason why the rank did not report this itself; empty if it did

    @property
    def longest(self) -> float:
        return max(self.waits.values(), default=0.0)


def current_state(rank: int, host: str) -> State:
    return State(rank, os.getpid(), host, MARKS.waits(), place())


def place() -> str:
    """Return the innermost line of the main thread that is in the user's program, or else in this package."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return ""
    frames = traceback.extract_stack(frame)
    for skipped in (_PACKAGE, _PACKAGE / "collective"):
        for line in reversed(frames):
            path = Path(line.filename)
            foreign = line.filename.startswith(("<", *_LIBRARIES)) or path.name.startswith(_GENERATED)
            if not foreign and not path.is_relative_to(skipped):
                return f"{path.name}:{line.lineno} in {line.name}: {line.line}"
    return ""


def describe(states: Sequence[State], seconds: float) -> list[str]:
    """Return the lines of the report: headline, longest-waiting rank, ranks that are not in this call, other ranks."""
    first = max(states, key=lambda state: (round(state.longest), -state.rank))
    name = next(iter(first.waits), "")
    elsewhere = [state for state in states if name not in state.waits]
    others = [state for state in states if name in state.waits and state.rank != first.rank]
    head = f"stall: rank {first.rank} has waited {seconds:g} s for "
    if elsewhere:
        numbers = ", ".join(str(state.rank) for state in elsewhere[:_MOST_RANKS])
        more = ", …" if len(elsewhere) > _MOST_RANKS else ""
        head += f"rank {numbers}{more}, which {'are' if len(elsewhere) > 1 else 'is'} elsewhere"
    else:
        head += "an answer, and all ranks are in the same call: check the network between them"
    lines = [head, *(f"  {_line(state)}" for state in [first, *elsewhere, *others][:_MOST_RANKS])]
    return lines if len(states) <= _MOST_RANKS else [*lines, f"  and {len(states) - _MOST_RANKS} more ranks"]


def _line(state: State) -> str:
    who = f"rank {state.rank} (pid {state.pid} on {state.host})"
    if state.silence:
        return f"{who} {state.silence}"
    waits = [f"{name} for {seconds:.0f} s" for name, seconds in state.waits.items()]
    if len(waits) > _MOST_WAITS:
        waits[_MOST_WAITS:] = [f"{len(waits) - _MOST_WAITS} more"]
    what = f"waits in {', '.join(waits)}" if waits else "is in no collective"
    return f"{who} {what}" + (f"; {state.place}" if state.place else "")
