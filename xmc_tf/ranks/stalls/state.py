"""What a rank says of itself when another one that waits asks for it."""

import os
import sys
import sysconfig
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from xmc_tf.ranks.stalls.marks import MARKS

# Code that says little about where in the program a process is: who called it says more.
_PACKAGE = Path(__file__).resolve().parents[2]
_GENERATED = "__autograph_generated_file"
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class State:
    """One rank at one moment.

    Args:
        rank: its number.
        pid: its process.
        host: where it runs.
        waits: the collectives that it is in, by name, and for how many seconds, the longest first.
        place: where in the program it is.
        silence: why it has not said so itself; empty where it has.
    """

    rank: int
    pid: int
    host: str
    waits: dict[str, float] = field(default_factory=dict)
    place: str = ""
    silence: str = ""

    @property
    def longest(self) -> float:
        """Seconds of the longest wait."""
        return max(self.waits.values(), default=0.0)


def own_state(rank: int, host: str) -> State:
    """This process's."""
    return State(rank, os.getpid(), host, MARKS.waits(), place())


def place() -> str:
    """Where the main thread is: the innermost line of the user's own program, or else of this package's."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return ""
    frames = traceback.extract_stack(frame)
    for beside in (_PACKAGE, _PACKAGE / "collective"):
        for line in reversed(frames):
            path = Path(line.filename)
            foreign = line.filename.startswith(("<", *_LIBRARIES)) or path.name.startswith(_GENERATED)
            if not foreign and not path.is_relative_to(beside):
                return f"{path.name}:{line.lineno} in {line.name}: {line.line}"
    return ""
