"""A rank ends when the program that started the ranks has ended.

``horovodrun --mpi`` is a shell that runs ``mpirun``: when it is killed, mpirun and the ranks know nothing of it and
continue. So each rank watches those of its ancestors that are launchers. A launcher that works as it should ends after
its ranks. Ancestors that are no launchers (a shell, sshd, a batch system) may end without an effect.
"""

import contextlib
import os
import re
import select
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

# What launchers tell the processes that they start.
RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")

_PROGRAMS = {"horovodrun", "mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "mpiexec.hydra"}
_MODULES = {"horovod.runner.launch", "xmc_tf.launch", "xmc_tf.launch.agent"}
# What horovodrun becomes over MPI. Nobody else begins a shell's command like this.
_HOROVODRUN_AS_SHELL = re.compile(r"mpirun (--allow-run-as-root --tag-output|-l) -np \d")
_KILL_S = 20.0  # from SIGTERM to SIGKILL, for a program that handles the first in its own way


class Process(NamedTuple):
    """A process of this host; the time of its start tells it from a later one with the same number."""

    pid: int
    started: int  # clock ticks since the host's start

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return find(self.pid) == self


def find(pid: int) -> Process | None:
    """Return the process of that number, unless it has ended."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else Process(pid, int(fields[19]))


def is_rank() -> bool:
    """Return whether a launcher has started this process."""
    return any(name in os.environ for name in RANK_VARIABLES)


def launchers() -> list[tuple[Process, str]]:
    """Return this process's ancestors that are launchers, and their names, the nearest first."""
    return [(process, name) for process in ancestors() if (name := _launcher_name(process.pid))]


def ancestors(up_to: Process | None = None) -> list[Process]:
    """Return the processes above this one, the nearest first, up to and with the given one or the first of the host."""
    found: list[Process] = []
    pid = os.getppid()
    while pid > 1 and (not found or found[-1] != up_to):
        process, fields = find(pid), _stat(pid)
        if process is None or fields is None:
            break
        found.append(process)
        pid = int(fields[1])
    return found


_watching = threading.Lock()  # taken once and kept


def end_with_launcher() -> None:
    """If a launcher has started this process, end it when the launcher has ended.

    It gets SIGTERM, which may be handled, and SIGKILL 20 s later.
    """
    if not is_rank():
        return
    handles: dict[int, str] = {}
    for process, name in launchers():
        with contextlib.suppress(OSError):  # it has just ended
            handle = os.pidfd_open(process.pid)
            handles[handle] = f"{name}, pid {process.pid}"
    if handles and _watching.acquire(blocking=False):
        threading.Thread(target=_watch, args=(handles, os.getpid()), name="xmc_tf launcher", daemon=True).start()


def _watch(handles: dict[int, str], own: int) -> None:
    """Return the thread: waits for the end of one of the launchers."""
    waiting = select.poll()
    for handle in handles:
        waiting.register(handle, select.POLLIN)
    (ended, _), *_ = waiting.poll()
    with contextlib.suppress(OSError):  # who started the ranks read their output, and has gone
        os.write(2, f"the launcher ({handles[ended]}) has ended: this rank ends too\n".encode())
    os.kill(own, signal.SIGTERM)
    time.sleep(_KILL_S)
    os.kill(own, signal.SIGKILL)


def _stat(pid: int) -> list[str] | None:
    """Return what Linux says of a process from its state on (see proc(5)), or None where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _launcher_name(pid: int) -> str:
    """Return the name of a launcher, and nothing for any other program."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return ""
    return launcher_of(words)


def launcher_of(words: list[str]) -> str:
    """Return the launcher's name in a command line, and nothing where it starts any other program.

    Example:
        >>> launcher_of(["/usr/bin/python3", "/usr/local/bin/horovodrun", "-np", "2", "train.py"])
        'horovodrun'
        >>> launcher_of(["/bin/sh", "-c", "mpirun -n 2 train.py &"])
        ''
    """
    program, *rest = words
    name = Path(program).name
    if name in _PROGRAMS:
        return name
    if name.startswith("python"):
        return _launcher_in_python(rest)
    if name in ("sh", "dash", "bash") and rest[:1] == ["-c"] and _HOROVODRUN_AS_SHELL.match("".join(rest[1:2])):
        return "horovodrun"
    return ""


def _launcher_in_python(words: list[str]) -> str:
    """Return the launcher that an interpreter is started for with these arguments."""
    rest = iter(words)
    for word in rest:
        if word == "-m":
            module = next(rest, "")
            if module == "xmc_tf" and next(rest, "") == "launch":
                return "xmc_tf.launch"
            return module if module in _MODULES else ""
        if word in ("-X", "-W"):
            next(rest, "")
        elif not word.startswith("-"):
            name = Path(word).name
            if name == "xmc-tf" and next(rest, "") == "launch":
                return "xmc_tf.launch"
            return name if name in _PROGRAMS else ""
        elif word == "-c":
            return ""
    return ""
