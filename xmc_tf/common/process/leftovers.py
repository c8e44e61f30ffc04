"""Leftovers of killed runs outside their folders. The next run on the host removes them."""

import contextlib
import logging
import os
import re
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from xmc_tf.common.process.launcher import process_state
from xmc_tf.common.regular import lock_file

log = logging.getLogger(__name__)

_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "xmc_tf-temporary-"
_LEAST_AGE_S = 10.0  # the owner of a younger segment may not have mapped it yet


class TemporaryFolder:
    """A temporary folder. It is removed with this object, without a warning, or by the next run after a kill."""

    def __init__(self) -> None:
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
        handle = os.open(made, os.O_RDONLY)
        lock_file(handle)  # the kernel releases the lock when the process ends in any way
        self.name = str(made.rename(made.with_name(made.name[1:])))  # others see it only with its lock
        self._remove = weakref.finalize(self, _remove, self.name, handle)

    def cleanup(self) -> None:
        self._remove()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _remove(folder: str, handle: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(handle)


def remove_leftovers() -> None:
    """Remove leftovers of killed runs, once on each host. Call it before MPI starts."""
    if os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", os.environ.get("HOROVOD_LOCAL_RANK", "0")) != "0":
        return
    removed = []
    for path in (*_unlocked_folders(), *_sessions(), *_unmapped_segments()):
        with contextlib.suppress(OSError):  # another run has just removed it
            if path.parent == _SHARED_MEMORY:
                path.unlink()
            else:
                shutil.rmtree(path)
            removed.append(str(path))
    with contextlib.suppress(OSError):  # there is none, or it is in use
        _open_mpi_folder().rmdir()
    if removed:
        log.info("removed the leftovers of a killed run: %s", " ".join(removed))


def _mine(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield what is in a folder, is no link, and is of this user."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # it has just been removed
            if path.lstat().st_uid == os.geteuid() and not path.is_symlink():
                yield path


def _unlocked_folders() -> Iterator[Path]:
    for folder in _mine(Path(tempfile.gettempdir()), f"{_PREFIX}????????"):
        with contextlib.suppress(OSError):  # not a folder
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            if lock_file(handle):
                yield folder
            os.close(handle)


# The names of Open MPI 4 contain the host, because containers may share these folders, but not processes.
def _open_mpi_host() -> str:
    return f"{socket.gethostname().partition('.')[0]}.{os.geteuid()}"


def _open_mpi_folder() -> Path:
    return Path(tempfile.gettempdir(), f"ompi.{_open_mpi_host()}")


def _sessions() -> Iterator[Path]:
    for folder in _mine(_open_mpi_folder(), "pid.*"):
        number = folder.name.removeprefix("pid.")
        if number.isdecimal() and process_state(int(number)) == "ended":
            yield folder


def _unmapped_segments() -> list[Path]:
    found = {}
    for path in _mine(_SHARED_MEMORY, f"vader_segment.{_open_mpi_host()}.*"):
        with contextlib.suppress(OSError):  # it has just been removed
            if time.time() - path.stat().st_ctime > _LEAST_AGE_S:
                found[path.name] = path
    for maps in Path("/proc").glob("[0-9]*/maps") if found else ():
        # A process of another user cannot have mapped ours, and one may just have ended.
        with contextlib.suppress(OSError):
            for name in re.findall(rf"{_SHARED_MEMORY}/(\S+)$", maps.read_text(), re.MULTILINE):
                found.pop(name, None)
    return sorted(found.values())
