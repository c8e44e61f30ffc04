"""One command that is killed at a chosen moment, and what is left of it."""

import contextlib
import hashlib
import os
import random
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.distributed.launch import REPOSITORY, environment

MARK = "XMC_TF_CAMPAIGN_RUN"
END_S = 30.0  # for all processes of a run that has been killed
LIMIT_S = 300.0  # for a run that nobody disturbs
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_RANK = re.compile(r"^\[[\d,]+\]<std(?:err|out)>:", re.MULTILINE)


@dataclass
class Outcome:
    """How a run ended."""

    seconds: float
    returncode: int | None
    output: str
    hit: bool = True  # False: it was over before the moment came
    left: list[str] = field(default_factory=list)  # processes that were still there after END_S

    @property
    def tracebacks(self) -> list[str]:
        """Those of our program. What the interpreter prints before it has imported anything is not in our hands."""
        return [text for text in _tracebacks(self.output) if "xmc_tf" in text]


@dataclass(frozen=True)
class Blow:
    """A kill: which signal, to whom (``rank``, ``all``, ``launcher``), and when."""

    number: signal.Signals
    whom: str
    after: float  # seconds from the start, or from the moment at which ``placing`` comes true
    placing: bool = False  # at the end, when the result takes its place

    def __str__(self) -> str:
        when = f"{1000 * self.after:.0f} ms after {'the result begins to appear' if self.placing else 'its start'}"
        return f"{self.number.name} to {self.whom}, {when}"


def run(
    command: Sequence[str],
    folder: Path,
    blow: Blow | None = None,
    chance: random.Random | None = None,
    appearing: Callable[[], bool] = lambda: True,
) -> Outcome:
    """Run a command, deliver the blow, and wait for the end of all its processes.

    Args:
        command: what to run.
        folder: for its output and its temporary files.
        blow: None lets it end by itself.
        chance: chooses the rank.
        appearing: whether the result begins to appear beside its place.
    """
    mark = os.urandom(8).hex()
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    log = folder / "run.log"
    started = time.monotonic()
    with log.open("wb") as output:
        launcher = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=environment() | {MARK: mark, "TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_as_from_a_terminal,
        )
    hit = False
    try:
        if blow is None:
            launcher.wait(LIMIT_S)
        else:
            hit = _moment(launcher, blow, started, appearing)
            if hit and blow.whom == "launcher" and blow.number == signal.SIGINT:
                # As a terminal does it.
                os.killpg(launcher.pid, signal.SIGINT)
            elif hit:
                for pid in _victims(launcher.pid, blow.whom, mark, chance or random.Random(0)):
                    _send(pid, blow.number)
    except subprocess.TimeoutExpired:
        pass
    limit = time.monotonic() + END_S
    while (left := _marked(mark)) and time.monotonic() < limit:
        launcher.poll()
        time.sleep(0.05)
    names = [" ".join(_command_line(process)) for process in left]
    for process in left:
        _send(process.pid, signal.SIGKILL)
    launcher.wait(END_S)
    return Outcome(
        time.monotonic() - started, launcher.returncode, log.read_text(errors="replace"), hit or blow is None, names
    )


def contents(folder: Path, but: Sequence[str] = ()) -> dict[str, str]:
    """Return the checksum of each file of a folder, or of what a database holds, and nothing where there is neither."""
    if folder.is_file():
        with contextlib.closing(sqlite3.connect(f"{folder.absolute().as_uri()}?mode=rw", uri=True)) as database:
            return {"": hashlib.sha256("".join(database.iterdump()).encode()).hexdigest()}
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in but
    }


def shared_memory() -> set[str]:
    """Return the files in shared memory that no process uses."""
    names = {path.name for path in Path("/dev/shm").iterdir() if path.is_file()}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            names -= set(re.findall(r"/dev/shm/(\S+)$", maps.read_text(), re.MULTILINE))
        except OSError:
            continue  # it has just ended
    return names


def _moment(launcher: subprocess.Popen[bytes], blow: Blow, started: float, appearing: Callable[[], bool]) -> bool:
    """Wait for the moment; return whether the run is still there."""
    if blow.placing:
        while not appearing():
            if launcher.poll() is not None:
                return False
            time.sleep(0.0005)
        started = time.monotonic()
    time.sleep(max(0.0, started + blow.after - time.monotonic()))
    return launcher.poll() is None


def _victims(launcher: int, whom: str, mark: str, chance: random.Random) -> list[int]:
    if whom == "launcher":
        return [launcher]
    everybody = _marked(mark)
    if whom == "all":
        return [process.pid for process in everybody]
    ranks = sorted(process.pid for process in everybody if _is_rank(process))
    return [chance.choice(ranks)] if ranks else [launcher]


def _is_rank(process: psutil.Process) -> bool:
    words = _command_line(process)
    return "python" in Path(words[0]).name and "-m" in words and words[words.index("-m") + 1].startswith("xmc_tf.")


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline() or ["?"]
    except psutil.Error:
        return ["?"]


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _as_from_a_terminal() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _tracebacks(output: str) -> list[str]:
    """Return the tracebacks in it: each from its title to its last line, the exception."""
    found: list[str] = []
    inside = False
    for line in _RANK.sub("", output).splitlines():
        if line.startswith("Traceback (most recent call last)"):
            found.append(line)
            inside = True
        elif inside:
            found[-1] += f"\n{line}"
            inside = line.startswith(" ")
    return found
