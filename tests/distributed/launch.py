"""Starts a worker script on several ranks, waits with a limit, and gives back what each rank said.

Everything runs on this machine over the loopback interface. Each rank's output goes to a file of its own
(``tests.distributed.rank`` sees to it), so that ranks never mix, and a failing test shows the last lines of
each.

Example:
    >>> run = horovodrun("smoke.py", world=2, engine="gloo")
    >>> run.ranks[1].result
    {'rank': 1, 'size': 2}
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

REPOSITORY = Path(__file__).resolve().parents[2]
WORKERS = Path(__file__).parent / "workers"
BIN = Path(sys.executable).parent
MARK = "XMC_TF_TEST_RUN"  # every process of a run carries it, whoever its parent is by then
TAIL = 25

ENVIRONMENT = {
    # Open MPI: may be root (containers), more ranks than cores, no binding of both ranks to one core, and
    # the loopback interface only.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_btl": "self,vader,tcp",
    # Containers often forbid the system call behind single-copy messages.
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    # Ranks share the cores of one machine.
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_USE_LEGACY_KERAS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "PYTHONUNBUFFERED": "1",
    # Modules' byte code is kept, as an installation keeps it: ranks do not all compile the package at every start.
    "PYTHONDONTWRITEBYTECODE": "",
}


@dataclass(frozen=True)
class Rank:
    """What one rank left behind."""

    rank: int
    output: str

    @property
    def result(self) -> Any:
        """The last line of the output that is JSON."""
        for line in reversed(self.output.splitlines()):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                continue
        raise AssertionError(f"rank {self.rank} printed no JSON:\n{self.output}")


@dataclass(frozen=True)
class Run:
    """How a launch ended."""

    command: list[str]
    returncode: int | None  # None: it was stopped at its time limit
    seconds: float
    ranks: list[Rank]
    launcher: str
    leftovers: int

    def describe(self) -> str:
        """Return the end of what the launcher and every rank said."""
        state = "stopped at its time limit" if self.returncode is None else f"ended with {self.returncode}"
        parts = [f"{' '.join(self.command)}\n{state} after {self.seconds:.1f} s"]
        parts += [f"--- rank {rank.rank}\n{_tail(rank.output)}" for rank in self.ranks]
        parts.append(f"--- launcher\n{_tail(self.launcher)}")
        return "\n".join(parts)


class LaunchError(AssertionError):
    """The launch did not end with 0 in time; ``run`` says how it ended instead."""

    def __init__(self, run: Run) -> None:
        self.run = run
        super().__init__(run.describe())


def horovodrun(
    worker: str | Path,
    *arguments: str,
    world: int = 2,
    engine: Literal["gloo", "mpi"] = "gloo",
    **options: Any,
) -> Run:
    """Run ``worker`` on ``world`` ranks under ``horovodrun``; options as of ``launch``."""
    warm = options.get("warm")
    program = [*warm, "-m", "horovod.runner.launch"] if warm else [str(BIN / "horovodrun")]
    command = [*program, f"--{engine}", "-np", str(world), "-H", f"localhost:{world}"]
    command += ["--network-interfaces", "lo", "--disable-cache"]
    return launch(command, worker, arguments, **options)


def mpiexec(worker: str | Path, *arguments: str, world: int = 2, **options: Any) -> Run:
    """Run ``worker`` on ``world`` ranks under ``mpiexec``; options as of ``launch``."""
    return launch([str(BIN / "mpiexec"), "-n", str(world)], worker, arguments, **options)


def python(worker: str | Path, *arguments: str, **options: Any) -> Run:
    """Run ``worker`` alone, to compare with; options as of ``launch``."""
    return launch([], worker, arguments, **options)


def launch(
    launcher: Sequence[str],
    worker: str | Path,
    arguments: Sequence[str],
    *,
    timeout: float = 120.0,
    env: dict[str, str] | None = None,
    check: bool = True,
    during: Callable[[Path], None] | None = None,
    warm: Sequence[str] | None = None,
) -> Run:
    """Run ``worker`` under ``launcher`` and leaves no process of it behind.

    Args:
        launcher: the command in front, which decides the number of ranks.
        worker: a script in ``workers/``, a path, or ``module:package.name``.
        arguments: what the worker is called with.
        timeout: seconds after which everything is stopped.
        env: variables besides this process's and ``ENVIRONMENT``.
        check: raise ``LaunchError`` unless it ends with 0 in time.
        during: called once with the folder of the ranks' files (``<rank>.pid``, ``<rank>.out``) while they
            run, for tests that disturb them.
        warm: the beginning of the ranks' command line, as ``warm.warm`` gives it, so that they start in a blink.
    """
    with tempfile.TemporaryDirectory(prefix="xmc-tf-run-") as name:
        folder = Path(name)
        target = str(worker) if str(worker).startswith("module:") else str(WORKERS / worker)
        program = warm or [sys.executable]
        command = [*launcher, *program, "-m", "tests.distributed.rank", str(folder), target, *arguments]
        started = time.monotonic()
        log = folder / "launcher.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env={**environment(), **(env or {}), MARK: str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_as_from_a_terminal,
            )
        returncode: int | None = None
        try:
            if during is not None:
                during(folder)
            returncode = process.wait(timeout=max(0.0, timeout - (time.monotonic() - started)))
        except subprocess.TimeoutExpired:
            pass
        finally:
            seconds = time.monotonic() - started
            leftovers = _stop(process, folder)
        ranks = [
            Rank(int(path.stem), path.read_text(errors="replace"))
            for path in sorted(folder.glob("*.out"), key=lambda path: int(path.stem))
        ]
        run = Run(command, returncode, seconds, ranks, log.read_text(errors="replace"), leftovers)
    if check and run.returncode != 0:
        raise LaunchError(run)
    return run


def wait_for(condition: Callable[[], object], seconds: float = 60.0, what: str = "the condition") -> None:
    """Return when ``condition()`` holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true in {seconds:.0f} s")
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Return whether the process lives. One that has ended and waits for a container's slow init does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def environment() -> dict[str, str]:
    """What all runs are started with."""
    # What a launcher above these tests has set would make the ranks believe they were its own.
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "HOROVOD_"))
    }
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return inherited | ENVIRONMENT | {"PATH": path}


def _as_from_a_terminal() -> None:
    """Ctrl-C is heard: a test run that was itself started in the background hands down that it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _stop(process: subprocess.Popen[bytes], folder: Path) -> int:
    """End what is left of a run, gently first; returns how many processes had to be killed."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
    end = time.monotonic() + 3
    while (left := _processes_of(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    for one in left:
        # Launchers put their workers into sessions of their own, so the group's end may not have been theirs.
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, timeout=5)
    return len(left)


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return


def _processes_of(folder: Path) -> list[psutil.Process]:
    """Return the living processes that carry the mark of this run."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == str(folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    return found


def _tail(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(lines[-TAIL:]) if lines else "(nothing)"
