"""Replacement of whole folders: a new folder is filled beside the old one, and takes its name when it is complete.

The old folder is renamed, then the new one; then files beside the parts are moved from the old one, which is removed.
A folder that should not be renamed (a mount point, the working directory, a folder of another user) stays
where it is: its old parts are moved out, header first, and the new ones in, header last. What a killed run leaves is
completed or undone by the next run that writes the folder.
"""

import contextlib
import fcntl
import glob
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.common.process.invocation import command_name
from xmc_tf.store.files import hidden_prefix, named_error, umask
from xmc_tf.store.kinds import FolderKind

_LOG = logging.getLogger(__name__)
_filled: set[Path] = set()  # new folders
# Of this process: the open lock file, how many hold it, and the folders that were made for it.
_locks: dict[Path, tuple[int, int, list[Path]]] = {}
_guard = threading.Lock()
# Ends of hidden names, as long as those of `mkdtemp`: of the old folder, once it is renamed; of old parts that were
# moved out of a folder that stays where it is; and of the new parts from when all old ones are out.
_PREVIOUS, _OUTDATED, _COMPLETE = "previous", "outdated", "complete"


def named_folder(path: str | Path) -> Path:
    """Return a path that ends in a name, so that files can be put beside it. ``.`` and ``..`` become absolute."""
    path = Path(path)
    return path if path.name not in ("", "..") else Path(os.path.abspath(path))


@contextmanager
def publish(path: str | Path, kind: FolderKind) -> Iterator[Path]:
    """Yield a folder to fill. If the block succeeds, it replaces ``path``; files beside its parts stay.

    If ``path`` is in a folder that is being filled, yield ``path`` itself: only the outermost folder is replaced.
    """
    if _filled and not _filled.isdisjoint(Path(path).absolute().resolve().parents):
        Path(path).mkdir(parents=True, exist_ok=True)
        yield Path(path)
        return
    with claimed_folder(path, kind) as folder:
        new = temporary_folder_beside(folder)
        _filled.add(new)
        try:
            new.chmod(0o777 & ~umask())
            yield new
            _swap(new, folder, kind)
        except OSError as error:
            if isinstance(error.filename, str) and Path(error.filename).is_relative_to(new):  # named by its final name
                name = folder / Path(error.filename).relative_to(new)
                raise OSError(error.errno, error.strerror, str(name)) from None
            raise named_error(error, folder) from None
        finally:
            _filled.discard(new)
            shutil.rmtree(new, ignore_errors=True)
            _settle(folder, kind)


@contextmanager
def claimed_folder(path: str | Path, kind: FolderKind, fix: str = "use another folder") -> Iterator[Path]:
    """Lock a folder, and settle or remove what a killed run left of it. Refuse a folder that holds files of others."""
    folder = Path(path).resolve()
    with folder_lock(folder) as is_first:
        if is_first:
            if _settle(folder, kind):
                _LOG.info("%s: completed or undid the replacement that an interrupted run had begun", folder)
            for left in _leftovers(folder):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
                _LOG.info("%s: removed %s, left by an interrupted run", folder, left.name)
        kind.check_place(folder, fix)
        yield folder


def aside(folder: Path) -> Path | None:
    """Return the old folder, or its parts, if a run was killed while it replaced the folder."""
    return next((old for end in (_PREVIOUS, _OUTDATED) if (old := _beside(folder.resolve(), end)).is_dir()), None)


def _swap(new: Path, folder: Path, kind: FolderKind) -> None:
    if not folder.exists():
        new.rename(folder)
        return
    shutil.copymode(folder, new)
    if new.parent == folder.parent and folder.stat().st_uid == os.geteuid() and not Path.cwd().is_relative_to(folder):
        folder.rename(_beside(folder, _PREVIOUS))
        new.rename(folder)
    else:
        outdated = _beside(folder, _OUTDATED)
        outdated.mkdir()
        _move(folder, outdated, kind, kind.has_part, header_first=True)
        new.rename(_beside(folder, _COMPLETE))
    # The rest is done by `_settle`, also after a kill.


def _settle(folder: Path, kind: FolderKind) -> bool:
    """Complete or undo a replacement that has begun; return whether one had. The caller holds the lock."""
    previous, outdated, complete = (_beside(folder, end) for end in (_PREVIOUS, _OUTDATED, _COMPLETE))
    if previous.is_dir() and not folder.exists():
        previous.rename(folder)
    elif previous.is_dir():
        _move(previous, folder, kind, lambda name: not kind.has_part(name))
        shutil.rmtree(previous)
    elif outdated.is_dir():
        _move(complete if complete.is_dir() else outdated, folder, kind, lambda _: True)
        shutil.rmtree(outdated)
        shutil.rmtree(complete, ignore_errors=True)
    else:
        return False
    return True


def _move(
    source: Path, target: Path, kind: FolderKind, moves: Callable[[str], bool], *, header_first: bool = False
) -> None:
    """Move entries of a folder for which ``moves`` is true, unless they exist; the header last, or first."""
    header = kind.header.partition("/")[0]
    for name in sorted(os.listdir(source), key=lambda name: (name == header) != header_first):
        if moves(name) and not os.path.lexists(target / name):
            (source / name).rename(target / name)


@contextmanager
def folder_lock(folder: str | Path) -> Iterator[bool]:
    """Hold the lock of a folder, which need not exist; yield whether this process did not hold it before.

    Several threads may hold it; the last one releases it.
    """
    folder = Path(folder).resolve()
    path = place_beside(folder) / f".{folder.name}.xmc_tf.lock"
    made = [parent for parent in path.parents if not parent.exists()]
    with _guard:
        is_first = path not in _locks
        descriptor, holds, made = (_locked(path, folder), 0, made) if is_first else _locks[path]
        _locks[path] = descriptor, holds + 1, made
    try:
        yield is_first
    finally:
        with _guard:
            descriptor, holds, made = _locks.pop(path)
            if holds > 1:
                _locks[path] = descriptor, holds - 1, made
            else:
                if _leads_to(path, descriptor):
                    path.unlink()  # before others get the lock: they notice, and make a new file
                os.close(descriptor)
                with contextlib.suppress(OSError):  # one is no longer empty
                    for parent in made:
                        parent.rmdir()


def _locked(path: Path, folder: Path) -> int:
    """Create and lock a file that names this run, and return its descriptor."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise InputError(
                    f"{folder} is being written by another run", expected="one run at a time",
                    received=f"a run {_holder(path) or 'whose record cannot be read'}",
                    fix="wait until it has ended, stop it, or use another folder",
                ) from None  # fmt: skip
            except OSError:
                _LOG.warning("%s: this file system has no locks: do not write to it from two runs at once", path.parent)
            if _leads_to(path, descriptor):
                break
            os.close(descriptor)  # the run that held the lock has just removed the file
    except FileNotFoundError:  # of /proc, where nothing can be created
        expected = "a place where files can be created"
        raise InputError(f"{folder} cannot be written", expected=expected, fix="use another folder") from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None
    if interrupted := _holder(path):
        _LOG.info("%s: the previous run did not finish (%s)", folder, interrupted)
    program = getattr(sys.modules.get("__main__"), "__spec__", None)
    command = command_name() or getattr(program, "name", None) or Path(sys.argv[0] or "python").name
    record = {"host": socket.gethostname(), "pid": os.getpid(), "command": command}
    try:
        path.write_text(json.dumps(record | {"started": time.strftime("%Y-%m-%d %H:%M:%S %Z")}), encoding="utf-8")
    except OSError as error:  # a full disk
        path.unlink()
        os.close(descriptor)
        raise named_error(error, folder) from None
    return descriptor


def _leads_to(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    """Describe the run that a lock file records. Return "" if the record cannot be read."""
    try:
        record = parse_json(path.read_bytes(), of="the lock")
        return (
            f"of {record['command']!s:.80} on host {record['host']!s:.80}, pid {int(record['pid'])}, "
            f"started {record['started']!s:.40}"
        )
    except (OSError, ValueError, KeyError, TypeError):  # an InputError is a ValueError
        return ""


def place_beside(folder: Path) -> Path:
    """Return the parent of ``folder``, or ``folder`` itself if it is a mount point or its parent is not writable."""
    parent = folder.parent
    if folder.is_dir() and (os.path.ismount(folder) or not os.access(parent, os.W_OK | os.X_OK)):
        return folder
    return parent


def temporary_folder_beside(folder: Path) -> Path:
    """Create an empty folder beside ``folder``, on the same disk. If the run is killed, the next one removes it."""
    beside = place_beside(folder)
    beside.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=hidden_prefix(folder.name), dir=beside))


def _beside(folder: Path, end: str) -> Path:
    return place_beside(folder) / f"{hidden_prefix(folder.name)}{end}"


def _leftovers(folder: Path) -> list[Path]:
    return sorted(place_beside(folder).glob(f"{glob.escape(hidden_prefix(folder.name))}????????"))
