"""One command line with bad input: runs it in a folder of its own, and judges how it ended.

Commands that need no TensorFlow run as ``cli.run(main, argv)`` in a child that is forked from this process, where the
modules are loaded already; all others, and some of these, are processes of their own.
"""

import atexit
import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import psutil

from tests.campaigns.hostile import FILES
from tests.files import obey_permissions
from xmc_tf.tables.connections import close_all

LIMIT_S = 300.0  # what takes longer waits for something
PROCESSOR_S = 120  # what takes more of the processor, which no other program of the machine changes, has no end
# Limit for a child, in addition to this process's own memory: excessive allocations fail here and not on the user's
# machine. Without the addition, a child of a large process has no memory for a thread, and Python waits for it forever.
_MEMORY = 8 << 30
_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS: mounts that only the child sees
_PRIVATE = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC


@dataclass(frozen=True)
class Case:
    """One command line.

    Args:
        command: the module below ``xmc_tf``.
        argv: its arguments; ``{in}`` stands for the folder of the inputs, ``{out}`` for one of its own.
        bad: (path below ``{out}``, kind of hostile file, the good file that it is made from) of each hostile file.
        model: the model among the inputs of which ``{out}/model`` is a copy; also ``{out}/closed/model``, in a folder
            in which nothing can be written.
        replaces: whether the command may replace ``{out}/model`` if it succeeds.
        forked: whether it may run in a forked child.
        room: size in bytes of the disk at ``{out}/disk``, where the model is copied to as well; 0 for no disk. Where
            this process may not mount, no file may be larger instead.
        largest_file: size in bytes that no file may exceed; 0 for no limit.
    """

    command: str
    argv: tuple[str, ...]
    bad: tuple[tuple[str, str, str], ...] = ()
    model: str = ""
    replaces: bool = False
    forked: bool = True
    room: int = 0
    largest_file: int = 0

    def __str__(self) -> str:
        shown = [one if len(one) < 60 else f"{one[:57]}..." for one in self.argv]
        what = ", ".join(
            [f"{path} is {kind}" for path, kind, _ in self.bad]
            + ([f"a disk of {self.room} bytes"] if self.room else [])
            + ([f"files of at most {self.largest_file} bytes"] if self.largest_file else [])
        )
        return f"{self.command} {' '.join(map(ascii, shown))}" + (f"  ({what})" if what else "")


def argv_of(flags: dict[str, str]) -> tuple[str, ...]:
    """Return the arguments of a command line: the positional one, whose flag is "", and then the flags."""
    rest = dict(flags)
    given = [rest.pop("")] if "" in rest else []
    return (*given, *itertools.chain.from_iterable(rest.items()))


def snapshot(folder: Path) -> dict[str, str]:
    """Return type and content of everything below a folder; holes are not read."""
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = b""
        if stat.S_ISREG(info.st_mode) and info.st_size < 1 << 26:
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = f"{info.st_mode:o} {info.st_size} {hashlib.sha256(content).hexdigest()}"
    return found


@dataclass(frozen=True)
class Outcome:
    """How a command line ended: ``ok`` or what was wrong, with the end of what it printed, and if it was refused."""

    verdict: str
    said: str = ""
    refused: bool = False


def run(case: Case, inputs: Path, limit_s: float = LIMIT_S) -> Outcome:
    """Run a case in its own folder and judge the result."""
    with tempfile.TemporaryDirectory(prefix="bad-input-") as name:
        out, log = Path(name, "out"), Path(name, "log")
        out.mkdir()
        (out / "closed").mkdir()
        (out / "disk").mkdir()
        if case.model:
            shutil.copytree(inputs / case.model, out / "model")
            shutil.copytree(inputs / case.model, out / "closed" / "model")
        for path, kind, good in case.bad:
            (out / path).unlink(missing_ok=True)
            FILES[kind](out / path, inputs / good)
        (out / "closed").chmod(0o555)
        given = [path for path, _, _ in case.bad]
        before = snapshot(inputs), {path: mark for path, mark in snapshot(out).items() if path in given or case.model}
        (out / "device").symlink_to("/dev/full")
        argv = [one.replace("{in}", str(inputs)).replace("{out}", str(out)) for one in case.argv]
        code = (_fork if case.forked else _start)(case, argv, out, log, limit_s)
        said = log.read_bytes().decode(errors="replace")
        if code == 0:
            # What a command is told to write beside the inputs is its own; the next command must not find it there.
            for path in snapshot(inputs).keys() - before[0].keys():
                shutil.rmtree(inputs / path) if (inputs / path).is_dir() else (inputs / path).unlink(missing_ok=True)
        after = snapshot(inputs), {path: mark for path, mark in snapshot(out).items() if path in before[1]}
        (out / "closed").chmod(0o755)
    if code is None or code == -signal.SIGXCPU:
        return Outcome("hangs", said[-600:])
    if "Traceback (most recent call last)" in said:
        return Outcome("tracebacks", said[-2000:])
    if code < 0:
        return Outcome("signals", f"signal {-code}: {said[-600:]}")
    if code not in (0, 1, 2):
        return Outcome("other_codes", f"exit status {code}: {said[-600:]}")
    if after != before and not (case.replaces and code == 0):
        changed = [
            path for a, b in zip(before, after, strict=True) for path in {**a, **b} if a.get(path) != b.get(path)
        ]
        return Outcome("files_lost", f"{changed}: {said[-300:]}")
    if "\x1b" in said:
        return Outcome("control_characters", ascii(said[-600:]))
    return Outcome("ok" if code == 0 or said.strip() else "silent", refused=code != 0)


def _fork(case: Case, argv: list[str], folder: Path, log: Path, limit_s: float) -> int | None:
    module = _module(case.command)
    child = os.fork()
    if not child:
        code = 70
        try:
            _become(case, folder, log)
            from xmc_tf.common.process import cli

            atexit.register(close_all)  # the parent's functions have been removed
            sys.argv = [case.command, *argv]
            cli.run(module.main, argv)
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        except BaseException:  # noqa: BLE001  what Python would print of a process of its own
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                close_all()  # os._exit calls nothing that is registered for the exit
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    return _wait(child, limit_s)


def _become(case: Case, folder: Path, log: Path) -> None:
    """Make the child look like a process that a shell has started, on a machine as the case wants it."""
    import logging
    import resource

    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(target, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    logging.getLogger().handlers.clear()
    os.chdir(folder)
    os.setsid()
    atexit._clear()  # what the parent has to put away, such as its temporary folders, is not the child's
    limit = psutil.Process().memory_info().vms + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    _limit_processor()
    largest = case.largest_file
    if case.room:
        disk = folder / "disk"
        if not _mount(disk, case.room):
            largest = case.room
        if case.model:
            shutil.copytree(folder / "model", disk, dirs_exist_ok=True)
    if largest:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    obey_permissions()


def _limit_processor() -> None:
    """Have the kernel end this process after some time on the processor."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S + 5))


def _mount(folder: Path, size: int) -> bool:
    """Mount a disk of some bytes, which disappears with this process; return whether this process may."""
    libc = ctypes.CDLL(None, use_errno=True)
    return (
        libc.unshare(_NEW_MOUNTS) == 0
        and libc.mount(None, b"/", None, _PRIVATE, None) == 0
        and libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size}".encode()) == 0
    )


def _wait(child: int, limit_s: float) -> int | None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _start(case: Case, argv: list[str], folder: Path, log: Path, limit_s: float) -> int | None:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", f"xmc_tf.{case.command}", *argv], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            cwd=folder, start_new_session=True, preexec_fn=_limit_processor,
        )  # fmt: skip
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def _module(command: str) -> ModuleType:
    """Return the module of a command, which may be a package."""
    name = f"xmc_tf.{command}"
    spec = importlib.util.find_spec(name)
    is_package = spec is not None and spec.submodule_search_locations is not None
    return importlib.import_module(f"{name}.__main__" if is_package else name)
