import os
import sys
import sysconfig
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from xmc_tf.ranks.stalls.marks import MARKS

# Code whose callers say more about where the program is.
_PACKAGE = Path(__file__).resolve().parents[2]
_GENERATED = "__autograph_generated_file"
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class State:
    """The state that a rank reports to the ranks that wait for it."""

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
    """Return the main thread's current line: the innermost line of the user's program, or else of this package."""
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
