"""Records of what a run creates outside its folders. If it is killed, the next run removes it.

A process holds a lock on its record, which the kernel releases when the process ends in any way.
"""

import atexit
import contextlib
import logging
import os
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from xmc_tf.common.process import signals
from xmc_tf.common.process.launcher import ancestors, is_rank, launchers, process_state
from xmc_tf.common.regular import lock_file

log = logging.getLogger(__name__)

_SHARED_MEMORY = Path("/dev/shm")
_OURS_IN_MEMORY = re.compile(r"(vader_segment\.|sem\.mp-)[\w.-]+")
_OUR_FOLDERS = re.compile(r"xmc-tf-\w+|pid\.(?P<pid>\d+)")
_LARGEST_RECORD = 1 << 16
_own: dict[int, int] = {}  # the open record of each process, because a fork has its own


def start() -> None:
    """Remove leftovers of killed runs on this host, and record this process's launcher. Call it before MPI starts."""
    if os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", os.environ.get("HOROVOD_LOCAL_RANK", "0")) == "0":
        clean_up()
    record_launcher()


class TemporaryFolder:
    """A temporary folder. It is removed with this object, without a warning, or by the next run after a kill."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="xmc-tf-")
        self._remove = weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)
        _remember([self.name])

    def cleanup(self) -> None:
        self._remove()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def record_launcher() -> None:
    """Record the files of this process's launcher, unless there is no launcher or they are already recorded."""
    if os.getpid() in _own or not is_rank():
        return
    names, variables = [], dict(os.environ)  # set by Open MPI 4
    if (job := variables.get("OMPI_MCA_ess_base_jobid", "")).isdecimal():
        names.append(f"{_SHARED_MEMORY}/vader_segment.*.{os.geteuid()}.{int(job):x}.*")
    session = variables.get("OMPI_MCA_orte_jobfam_session_dir", "")
    started_by = [pid for pid, _ in launchers()]
    if Path(session).name in {f"pid.{pid}" for pid in started_by}:
        names.append(session)
    # The processes between horovodrun and the ranks have mapped its semaphores, which shows their names.
    for pid in ancestors(up_to=started_by[-1]) if started_by else []:
        with contextlib.suppress(OSError):  # a process of another user, or one that has just ended
            maps = Path(f"/proc/{pid}/maps").read_text()
            names += sorted(set(re.findall(rf"{_SHARED_MEMORY}/sem\.mp-\S+$", maps, re.MULTILINE)))
    if names:
        _remember(names)


def clean_up() -> None:
    """Remove what is recorded of processes that have ended."""
    folder = _folder(make=False)
    for path in sorted(folder.glob("*.txt")) if folder is not None else ():
        with contextlib.suppress(OSError):  # its process has just removed it
            record = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _is_mine(path, stat.S_ISREG) and lock_file(record):
                    _remove_leftovers(path, os.pread(record, _LARGEST_RECORD, 0))
            finally:
                os.close(record)


def _remove_leftovers(path: Path, record: bytes) -> None:
    place, *names = os.fsdecode(record).split("\n")[:-1] or [_place()]  # a last line without an end is incomplete
    if place != _place():
        return
    removed = []
    for one in _unused(names):
        with contextlib.suppress(OSError):
            one.unlink()
            removed.append(str(one))
    for one in map(Path, names):
        kind = _OUR_FOLDERS.fullmatch(one.name)
        is_left = kind is not None and (kind["pid"] is None or process_state(int(kind["pid"])) == "ended")
        if is_left and _is_mine(one, stat.S_ISDIR):
            shutil.rmtree(one, ignore_errors=True)
            removed.append(str(one))
            with contextlib.suppress(OSError):  # Open MPI's folder of all sessions, if it is empty
                if one.name.startswith("pid."):
                    one.parent.rmdir()
    path.unlink(missing_ok=True)
    if removed:
        log.info("removed the leftovers of a killed run (pid %s): %s", path.stem.partition("-")[0], " ".join(removed))


def _remember(names: Iterable[str]) -> None:
    pid = os.getpid()
    with contextlib.suppress(OSError):  # a full disk: without a record, nothing is removed
        if pid not in _own:
            if (folder := _folder(make=True)) is None:
                return
            record, part = tempfile.mkstemp(prefix=f"{pid}-", suffix=".part", dir=folder)
            lock_file(record)  # before others see it
            path = Path(part).with_suffix(".txt")
            atexit.register(_forget, path, pid)
            os.rename(part, path)
            _own[pid] = record
            names = [_place(), *names]
        os.write(_own[pid], os.fsencode("".join(f"{name}\n" for name in names)))


def _forget(path: Path, pid: int) -> None:
    """Remove the record when the process ends. After a signal, keep it, because files may be left."""
    if pid == os.getpid() and signals.received() is None:
        path.unlink(missing_ok=True)
        path.with_suffix(".part").unlink(missing_ok=True)


def _unused(patterns: Iterable[str]) -> list[Path]:
    """Return the files in shared memory that match a pattern, are of Open MPI or horovodrun, and are not in use."""
    inside = [Path(pattern).name for pattern in patterns if Path(pattern).parent == _SHARED_MEMORY]
    found = {path for pattern in inside for path in _SHARED_MEMORY.glob(pattern)}
    names = {path.name for path in found if _OURS_IN_MEMORY.fullmatch(path.name) and _is_mine(path, stat.S_ISREG)}
    for maps in Path("/proc").glob("[0-9]*/maps") if names else ():
        # A process of another user cannot have mapped ours, and one may just have ended.
        with contextlib.suppress(OSError):
            names -= set(re.findall(rf"{_SHARED_MEMORY}/(\S+)$", maps.read_text(), re.MULTILINE))
    return [_SHARED_MEMORY / name for name in sorted(names)]


def _is_mine(path: Path, kind: Callable[[int], bool]) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and kind(status.st_mode)


def _folder(make: bool) -> Path | None:
    """Return the folder of the records, or None if it is missing or accessible to other users."""
    folder = Path(tempfile.gettempdir()) / f"xmc-tf-{os.geteuid()}"
    if make:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700)
    safe = _is_mine(folder, stat.S_ISDIR) and not folder.stat().st_mode & 0o077
    return folder if safe else None


@cache
def _place() -> str:
    """Return the host's boot and the PID namespace, within which /proc shows what uses a file."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
