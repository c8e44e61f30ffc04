"""Run a test program on several ranks with a time limit, and return the output of each rank.

Everything runs on this machine over the loopback interface. ``tests.distributed.rank`` writes each rank's output to its
own file, so that a failing test shows the last lines of each rank.

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import psutil

from tests.required import missing

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
BIN = Path(sys.executable).parent
HAS_HOROVOD = find_spec("horovod") is not None
MARK = "XMC_TF_TEST_RUN"  # set in all processes of a run, so that orphans are found
TAIL = 25
PATIENCE = 4  # time limits are those of an idle machine, times this

ENVIRONMENT = {
    # Open MPI: allow root (containers) and more ranks than cores, no binding to cores, only the loopback interface.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
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
    "CUDA_VISIBLE_DEVICES": "-1",
    # pyarrow, which Keras imports through pandas, would start a thread, and warm.py forks processes without any.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYTHONUNBUFFERED": "1",
    # Keep byte code, as an installation does, so that ranks do not compile the package at every start.
    "PYTHONDONTWRITEBYTECODE": "",
}


# Returns the beginning of the command lines of ranks that start fast, with Horovod imported or without; conftest.py
# sets it, see warm.py.
fast_start: Callable[[bool], Sequence[str]] | None = None


@dataclass(frozen=True)
class Rank:
    """The output of a rank."""

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
    """The outcome of a run."""

    command: list[str]
    returncode: int | None  # None: it was stopped at its time limit
    seconds: float
    ranks: list[Rank]
    launcher: str
    leftovers: int

    def describe(self) -> str:
        """Return the last lines of the launcher and of each rank."""
        state = "stopped at its time limit" if self.returncode is None else f"ended with {self.returncode}"
        parts = [f"{' '.join(self.command)}\n{state} after {self.seconds:.1f} s"]
        parts += [f"--- rank {rank.rank}\n{_tail(rank.output)}" for rank in self.ranks]
        parts.append(f"--- launcher\n{_tail(self.launcher)}")
        return "\n".join(parts)


class LaunchError(AssertionError):
    """The run did not exit with 0 in time, or a rank did not answer; ``run`` is its outcome."""

    def __init__(self, run: Run) -> None:
        self.run = run
        super().__init__(run.describe())


def horovodrun(
    program: str | Path,
    *arguments: str,
    world: int = 2,
    engine: Literal["gloo", "mpi"] = "gloo",
    cold: bool = False,
    **options: Any,
) -> Run:
    """Run ``program`` on ``world`` ranks under ``horovodrun``; the options are those of ``launch``.

    In tests, ranks start fast, with TensorFlow imported, unless they have to be ``cold``. Where Horovod is not
    installed, the test is skipped.
    """
    if not HAS_HOROVOD:
        missing("horovod", "Horovod is not installed (make setup compiles it where there is g++): it was not tested")
    if fast_start and not cold:
        options.setdefault("warm", fast_start(True))
    warm = options.get("warm")
    runner = [*warm, "-m", "horovod.runner.launch"] if warm else [str(BIN / "horovodrun")]
    command = [*runner, f"--{engine}", "-np", str(world), "-H", f"localhost:{world}"]
    command += ["--network-interfaces", "lo", "--disable-cache"]
    return launch(command, program, arguments, world=world, **options)


def mpiexec(program: str | Path, *arguments: str, world: int = 2, imported: bool = False, **options: Any) -> Run:
    """Run ``program`` on ``world`` ranks under ``mpiexec``; the options are those of ``launch``.

    Programs that need TensorFlow start faster if it is ``imported`` before.
    """
    if imported and fast_start:
        options["warm"] = fast_start(False)
    return launch([str(BIN / "mpiexec"), "-n", str(world)], program, arguments, world=world, **options)


def python(program: str | Path, *arguments: str, imported: bool = False, **options: Any) -> Run:
    """Run ``program`` as a single process, as ``mpiexec`` does."""
    if imported and fast_start:
        options["warm"] = fast_start(True)
    return launch([], program, arguments, **options)


def launch(
    launcher: Sequence[str],
    program: str | Path,
    arguments: Sequence[str],
    *,
    world: int = 1,
    timeout: float = 120.0,
    env: dict[str, str] | None = None,
    check: bool = True,
    during: Callable[[Path], None] | None = None,
    warm: Sequence[str] | None = None,
) -> Run:
    """Run ``program`` under ``launcher``, and leave no process behind.

    Args:
        launcher: the command that starts the ranks.
        program: a script in ``programs/``, a path, or ``module:package.name``.
        arguments: the program's arguments.
        world: number of ranks that must answer.
        timeout: seconds on an idle machine after which all processes are stopped.
        env: variables in addition to this process's and ``ENVIRONMENT``.
        check: raise ``LaunchError`` unless the run exits with 0 in time and each rank has written its output.
        during: called with the folder of the ranks' files (``<rank>.pid``, ``<rank>.out``) while they run, for tests
            that disturb them.
        warm: the beginning of the ranks' command line from ``warm.warm``, with which they start fast.
    """
    with tempfile.TemporaryDirectory(prefix="xmc-tf-run-") as name:
        folder = Path(name)
        target = str(program) if str(program).startswith("module:") else str(PROGRAMS / program)
        interpreter = warm or [sys.executable]
        command = [*launcher, *interpreter, "-m", "tests.distributed.rank", str(folder), target, *arguments]
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
            returncode = process.wait(timeout=max(0.0, PATIENCE * timeout - (time.monotonic() - started)))
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
    if check and (run.returncode != 0 or [rank.rank for rank in ranks] != list(range(world))):
        raise LaunchError(run)
    return run


def wait_for(
    condition: Callable[[], object], seconds: float = 60.0, what: str = "the condition", often: float = 0.05
) -> None:
    """Wait until ``condition()`` is true; it should become true in so many seconds on an idle machine."""
    end = time.monotonic() + PATIENCE * seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true in {PATIENCE * seconds:.0f} s")
        time.sleep(often)


def is_running(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def environment() -> dict[str, str]:
    """Return the environment of all runs."""
    # The variables of a launcher of these tests would confuse the ranks.
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "HOROVOD_"))
    }
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return inherited | ENVIRONMENT | {"PATH": path}


def _as_from_a_terminal() -> None:
    """Do not ignore Ctrl-C, as processes that are started in the background do."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _stop(process: subprocess.Popen[bytes], folder: Path) -> int:
    """End the processes of a run, first by SIGTERM; return the number of processes that had to be killed."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
    end = time.monotonic() + 3 * PATIENCE
    while (left := _processes_of(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    for one in left:
        # Launchers start ranks in other sessions, so these may not have ended with the group.
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
    """Return the running processes of this run."""
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
