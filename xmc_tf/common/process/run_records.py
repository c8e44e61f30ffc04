"""Records of the files that a run creates outside its folders. If it is killed, the next run removes these files."""

import atexit
import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import socket
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from xmc_tf.common.files.json_files import read_json
from xmc_tf.common.process import signals
from xmc_tf.common.process.launcher import Process, ancestors, find, is_rank, launchers

log = logging.getLogger(__name__)

_SHARED_MEMORY = Path("/dev/shm")
_OURS_IN_MEMORY = re.compile(r"(vader_segment\.|sem\.mp-)[\w.-]+")
_OUR_FOLDERS = re.compile(r"xmc-tf-\w+|pid\.\d+")
_LARGEST_RECORD = 1 << 16


@dataclass
class ProcessRecord:
    place: list[str]  # see _place
    owners: list[list[int]]  # ID and start time of the processes; the first one writes the record
    in_memory: list[str] = field(default_factory=list)  # names or patterns in /dev/shm
    folders: list[str] = field(default_factory=list)

    @property
    def dead(self) -> bool:
        # Process IDs are unique in a PID namespace, whose processes may have several host names.
        return self.place[1:] == _place()[1:] and not any(Process(*owner).alive for owner in self.owners)


_own: dict[int, ProcessRecord] = {}  # by process ID, because a fork has its own record


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
        _remember(folders=[self.name])

    def cleanup(self) -> None:
        self._remove()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def clean_up() -> None:
    folder = _folder(make=False)
    if folder is None:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(BlockingIOError):  # another process is doing so
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in sorted(folder.glob("*.json")):
                _remove_leftovers(path)
    finally:
        os.close(handle)


def record_launcher() -> None:
    """Record the files of this process's launcher, unless there is no launcher or they are already recorded."""
    if os.getpid() in _own or not is_rank():
        return
    in_memory, folders, owners = [], [], []
    variables = dict(os.environ)  # set by Open MPI 4
    if (job := variables.get("OMPI_MCA_ess_base_jobid", "")).isdecimal():
        in_memory.append(f"vader_segment.*.{os.geteuid()}.{int(job):x}.*")
    session = Path(variables.get("OMPI_MCA_orte_jobfam_session_dir", ""))
    started_by = launchers()
    for process, _ in started_by:
        owners.append(list(process))
        if session.name == f"pid.{process.pid}":
            folders.append(str(session))
    # The processes between horovodrun and the ranks have mapped its semaphores, which shows their names.
    for process in ancestors(up_to=started_by[-1][0]) if started_by else []:
        with contextlib.suppress(OSError):  # a process of another user, or one that has just ended
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            names = sorted(set(re.findall(rf"{_SHARED_MEMORY}/(sem\.mp-\S+)$", maps, re.MULTILINE)))
            if names:
                owners.append(list(process))
                in_memory += names
    if in_memory or folders:
        _remember(in_memory, folders, owners)


def _remove_leftovers(path: Path) -> None:
    record = _read(path)
    if record is None or not record.dead:
        return
    removed = []
    for name in _unused(record.in_memory):
        with contextlib.suppress(OSError):
            (_SHARED_MEMORY / name).unlink()
            removed.append(str(_SHARED_MEMORY / name))
    for one in map(Path, record.folders):
        if _OUR_FOLDERS.fullmatch(one.name) and _is_mine(one, stat.S_ISDIR):
            shutil.rmtree(one, ignore_errors=True)
            removed.append(str(one))
            with contextlib.suppress(OSError):  # Open MPI's folder of all sessions, if it is empty
                if one.name.startswith("pid."):
                    one.parent.rmdir()
    path.unlink(missing_ok=True)
    if removed:
        log.info("removed the leftovers of a killed run (pid %d): %s", record.owners[0][0], " ".join(removed))


def _remember(in_memory: Iterable[str] = (), folders: Iterable[str] = (), owners: Iterable[list[int]] = ()) -> None:
    place, own = _folder(make=True), find(os.getpid())
    if place is None or own is None:
        return
    record = _own.get(own.pid)
    path = place / f"{own.pid}-{own.started}.json"
    if record is None:
        record = _own[own.pid] = ProcessRecord(_place(), [list(own)])
        atexit.register(_forget, path, own.pid)
    record.in_memory += in_memory
    record.folders += folders
    record.owners += owners
    part = path.with_suffix(".part")
    try:
        part.write_text(json.dumps(asdict(record)))
        part.rename(path)
    except OSError:  # a full disk: without a record, nothing is removed
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _forget(path: Path, pid: int) -> None:
    """Remove the record when the process ends. After a signal, keep it, because files may be left."""
    if pid == os.getpid() and signals.received() is None:
        path.unlink(missing_ok=True)


def _read(path: Path) -> ProcessRecord | None:
    try:
        if not _is_mine(path, stat.S_ISREG) or path.stat().st_size > _LARGEST_RECORD:
            return None
        held = read_json(path, limit=_LARGEST_RECORD)
        record = ProcessRecord(
            [str(word) for word in held["place"]],
            [[int(pid), int(started)] for pid, started in held["owners"]],
            [str(name) for name in held["in_memory"]],
            [str(name) for name in held["folders"]],
        )
        return record if record.owners else None
    except (OSError, ValueError, KeyError, TypeError):  # an InputError is a ValueError
        return None


def _unused(patterns: Iterable[str]) -> list[str]:
    """Return the names in shared memory that match a pattern, are of Open MPI or horovodrun, and are not in use."""
    found = {path for pattern in patterns if "/" not in pattern for path in _SHARED_MEMORY.glob(pattern)}
    names = {path.name for path in found if _OURS_IN_MEMORY.fullmatch(path.name) and _is_mine(path, stat.S_ISREG)}
    for maps in Path("/proc").glob("[0-9]*/maps") if names else ():  # a later job may have the same ID
        # A process of another user cannot have mapped ours, and one may just have ended.
        with contextlib.suppress(OSError):
            names -= set(re.findall(rf"{_SHARED_MEMORY}/(\S+)$", maps.read_text(), re.MULTILINE))
    return sorted(names)


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
def _place() -> list[str]:
    """Return the scope in which process IDs are unique: host, boot and PID namespace."""
    place = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            place.append(os.readlink(path) if path.endswith("pid") else Path(path).read_text().strip())
        except OSError:
            place.append("?")
    return place
