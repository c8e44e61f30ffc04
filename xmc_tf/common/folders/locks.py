"""Locks on the folders that commands write: an ``flock`` on a file beside the folder, which names the holder."""

import contextlib
import errno
import fcntl
import glob
import json
import logging
import os
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.atomic import hidden_prefix, named_error
from xmc_tf.common.files.json_files import parse_json
from xmc_tf.common.process.invocation import command_name

_LOG = logging.getLogger(__name__)
_held: Counter[Path] = Counter()  # number of holders in this process
_locks: dict[Path, tuple[Path, int, list[Path]]] = {}
_held_guard = threading.Lock()
_LONGEST_RECORD = 4096


def place_beside(folder: Path) -> Path:
    """Return the parent of ``folder``, or ``folder`` itself if it is a mount point or its parent is not writable."""
    parent = folder.parent
    if folder.is_dir() and (os.path.ismount(folder) or not os.access(parent, os.W_OK | os.X_OK)):
        return folder
    return parent


@contextmanager
def folder_lock(folder: str | Path) -> Iterator[None]:
    """Hold the lock of a folder, which need not exist. A process may hold the same lock more than once, also in
    several threads; the last holder releases it."""
    folder = Path(folder).resolve()
    with _held_guard:
        if not _held[folder]:
            _locks[folder] = _acquire(folder)
        _held[folder] += 1
    try:
        yield
    finally:
        with _held_guard:
            _held[folder] -= 1
            if not _held[folder]:
                _release(*_locks.pop(folder))


def _acquire(folder: Path) -> tuple[Path, int, list[Path]]:
    """Lock a folder, and return the lock file, its descriptor, and the folders created for it."""
    beside = place_beside(folder)
    made = [parent for parent in [beside, *beside.parents] if not parent.exists()]
    beside.mkdir(parents=True, exist_ok=True)
    path = beside / f".{folder.name}.xmc_tf.lock"
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:  # of /proc, where nothing can be created
            raise InputError(
                f"{folder} cannot be written", expected="a place where files can be created", fix="use another folder"
            ) from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(descriptor)
            os.close(descriptor)
            raise InputError(
                f"{folder} is being written by another run",
                expected="one run at a time",
                received=f"a run {holder or 'whose record cannot be read'}",
                fix="wait until it has ended, stop it, or use another folder",
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                os.close(descriptor)
                raise
            _LOG.warning("%s: this file system has no locks: do not write to it from two runs at once", beside)
        # The previous holder may have removed the file between our open and our lock.
        if _has_path(path, descriptor):
            break
        os.close(descriptor)
    if interrupted := _read(descriptor):
        _LOG.info("%s: the previous run did not finish (%s)", folder, interrupted)
    elif size := os.fstat(descriptor).st_size:
        os.close(descriptor)
        raise InputError(
            f"{path} is not a lock file of xmc_tf", expected="no such file, or one left by an interrupted run",
            received=f"a file of {size:,} bytes", fix="move that file, or use another folder",
        )  # fmt: skip
    program = getattr(sys.modules.get("__main__"), "__spec__", None)
    command = command_name() or getattr(program, "name", None) or Path(sys.argv[0] or "python").name
    record = {"host": socket.gethostname(), "pid": os.getpid(), "command": command}
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record | {"started": time.strftime("%Y-%m-%d %H:%M:%S %Z")}).encode(), 0)
    except OSError as error:  # a full disk
        _release(path, descriptor, made)
        raise named_error(error, folder) from None
    return path, descriptor, made


def _release(path: Path, descriptor: int, made: list[Path]) -> None:
    # Removed while the lock is held: a process that opens the path from now on locks a new file.
    if _has_path(path, descriptor):
        path.unlink(missing_ok=True)
    os.close(descriptor)
    with contextlib.suppress(OSError):  # one is no longer empty
        for parent in made:
            parent.rmdir()


def _has_path(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> str:
    """Describe the run that an open lock file records. Return "" if the record cannot be read."""
    try:
        record = parse_json(os.pread(descriptor, _LONGEST_RECORD, 0), of="the lock")
        return (
            f"of {record['command']!s:.80} on host {record['host']!s:.80}, pid {int(record['pid'])}, "
            f"started {record['started']!s:.40}"
        )
    except (ValueError, KeyError, TypeError):  # an InputError is a ValueError
        return ""


def temporary_folder_beside(folder: Path) -> Path:
    """Create an empty folder beside ``folder``, on the same disk, with a name that ``leftovers_beside`` recognizes."""
    beside = place_beside(folder)
    beside.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=hidden_prefix(folder.name), dir=beside))


def leftovers_beside(folder: Path) -> list[Path]:
    """Return the files and folders that killed runs left beside ``folder``. The caller must hold the folder's lock."""
    return sorted(place_beside(folder).glob(f"{glob.escape(hidden_prefix(folder.name))}????????"))
