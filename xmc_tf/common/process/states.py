"""What Linux knows of processes and Python does not ask."""

import ctypes
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Has this process killed when the one that started it ends, however that comes about."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def process_state(pid: int) -> str:
    """How a process of this host is: ``running``, ``stopped`` (by a signal or a debugger) or ``ended``."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "ended"
    return {"T": "stopped", "t": "stopped", "Z": "ended", "X": "ended"}.get(letter, "running")
