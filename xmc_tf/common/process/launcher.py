"""End each rank when its launcher has ended. If ``horovodrun --mpi`` is killed, mpirun does not notice it."""

import contextlib
import os
import re
import select
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path

from xmc_tf.common.process import signals

# The variables in which launchers pass the rank.
RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")

_PROGRAMS = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "mpiexec.hydra"}
_PROGRAMS |= {"horovodrun", "horovod.runner.launch", "xmc_tf.launch", "xmc_tf.launch.node"}
_COMMANDS = ["xmc_tf", "launch"], ["xmc-tf", "launch"]  # after python -m, and after python
# The command line that horovodrun becomes over MPI, which is unlikely for any other shell.
_HOROVODRUN_AS_SHELL = re.compile(r"mpirun (--allow-run-as-root --tag-output|-l) -np \d")
_KILL_S = 20.0  # from SIGTERM to SIGKILL, for a program that handles the first in its own way


def prepare() -> None:
    """Prepare a command before slow imports: signals end it without a traceback, and a rank ends with its launcher."""
    signals.end_at_once()
    end_with_launcher()


def process_state(pid: int) -> str:
    """Return a process's state: ``running``, ``stopped`` (by a signal or a debugger) or ``ended``."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return "ended"
    return "stopped" if fields[0] in "Tt" else "running"


def is_rank() -> bool:
    return any(name in os.environ for name in RANK_VARIABLES)


def launchers() -> list[tuple[int, str]]:
    """Return the ancestors of this process that are launchers, nearest first: their process IDs and names."""
    found, pid = [], os.getppid()
    while pid > 1 and (fields := _stat(pid)) is not None:
        with contextlib.suppress(OSError):  # it has just ended
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            if name := launcher_of(line.rstrip("\0").split("\0")):
                found.append((pid, name))
        pid = int(fields[1])
    return found


_watching = threading.Lock()  # taken once and kept


def end_with_launcher() -> None:
    """Start a thread that ends this rank when its launcher ends: by SIGTERM, and 20 s later by SIGKILL."""
    if not is_rank():
        return
    handles: dict[int, str] = {}
    for pid, name in launchers():
        with contextlib.suppress(OSError):  # it has just ended
            handles[os.pidfd_open(pid)] = f"{name}, pid {pid}"
    if handles and _watching.acquire(blocking=False):
        threading.Thread(target=_watch, args=(handles, os.getpid()), name="xmc_tf launcher", daemon=True).start()


def _watch(handles: dict[int, str], own: int) -> None:
    waiting = select.poll()
    for handle in handles:
        waiting.register(handle, select.POLLIN)
    (ended, _), *_ = waiting.poll()
    with contextlib.suppress(OSError):  # the launcher read this output, and has ended
        os.write(2, f"the launcher ({handles[ended]}) has ended: this rank ends too\n".encode())
    os.kill(own, signal.SIGTERM)
    time.sleep(_KILL_S)
    os.kill(own, signal.SIGKILL)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on (see proc(5)), or None if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def launcher_of(words: list[str]) -> str:
    """Return the name of the launcher that a command line starts, or "" if it starts another program."""
    program, *rest = words
    name = Path(program).name
    if name.startswith("python"):
        given = [Path(word).name for before, word in pairwise(words) if before not in ("-X", "-W") and word[:1] != "-"]
        name = "xmc_tf.launch" if given[:2] in _COMMANDS else "".join(given[:1])
    elif name in ("sh", "dash", "bash") and rest[:1] == ["-c"] and _HOROVODRUN_AS_SHELL.match("".join(rest[1:2])):
        return "horovodrun"
    return name if name in _PROGRAMS else ""
