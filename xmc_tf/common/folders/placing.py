"""Atomic replacement of whole folders, which keeps the files of other programs in them.

The new folder is filled beside the old one. If nothing exists at the path, the new folder is renamed to it. Otherwise,
files of other programs are hard-linked into the new folder, which is then exchanged with the old one in one step, so
that the path always leads to a complete folder. If this is impossible (a folder without files of xmc_tf, a mount point,
a disk without exchange or links), the new folder is moved into the old one, and its files are moved from there to their
places, the header last. If this is interrupted, the next run or the next reader completes it.
"""

import contextlib
import ctypes
import errno
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.atomic import is_staged, named_error, staged, umask
from xmc_tf.common.folders.kinds import FolderKind, files_of
from xmc_tf.common.folders.locks import folder_lock, leftovers_beside, temporary_folder_beside

_LOG = logging.getLogger(__name__)
PENDING = ".xmc_tf.placing"  # the new folder while its files are moved to their places
_OLD_HEADER = ".old-header"  # in it, until the outdated files are removed
# In a folder with more files of others, such as a home folder, files are moved one by one: links would take long.
_MOST_LINKED = 1000
_AT_FDCWD = -100
_EXCHANGE = 2
_RENAMEAT2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
# Errors of kernels, file systems (NFS, some of FUSE) and mount points that do not support it.
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES}


def named_folder(path: str | Path) -> Path:
    """Return a path that ends in a name, so that files can be put beside it. ``.`` and ``..`` become absolute."""
    path = Path(path)
    return path if path.name not in ("", "..") else Path(os.path.abspath(path))


@contextmanager
def claimed_folder(path: str | Path, kind: FolderKind, fix: str = "use another folder") -> Iterator[Path]:
    """Lock a folder, and finish or remove what a killed run left in it. Refuse a folder with conflicting files."""
    folder = Path(path).resolve()
    with folder_lock(folder):
        _recover(folder, kind)
        kind.check_place(folder, fix)
        yield folder


@contextmanager
def placed_folder(path: str | Path, kind: FolderKind) -> Iterator[Path]:
    """Yield a folder to fill. If the block succeeds, its files replace xmc_tf's files in ``path``; other files stay.

    If ``path`` is in a folder that is being filled, yield ``path`` itself: only the outermost folder is replaced.
    """
    if is_staged(Path(path)):
        Path(path).mkdir(parents=True, exist_ok=True)
        yield Path(path)
        return
    with claimed_folder(path, kind) as folder:
        part = temporary_folder_beside(folder)
        try:
            part.chmod(0o777 & ~umask())
            with staged(part):
                yield part
            _place(part, folder, kind)
        except OSError as error:
            if isinstance(error.filename, str) and Path(error.filename).is_relative_to(part):  # named by its final name
                name = folder / Path(error.filename).relative_to(part)
                raise OSError(error.errno, error.strerror, str(name)) from None
            raise named_error(error, folder) from None
        finally:
            # Only our files are left there, and links to others: see _merge_foreign.
            shutil.rmtree(part, ignore_errors=True)


def _recover(folder: Path, kind: FolderKind) -> None:
    """Complete or remove the leftovers of a killed run that wrote ``folder``. The caller must hold its lock."""
    if finish_placing(folder, kind):
        _LOG.info("%s: completed the replacement that an interrupted run had begun", folder)
    for leftover in leftovers_beside(folder):
        # Without a header, it is incomplete, or an older folder whose other files have been merged.
        if kind.is_at(leftover):
            _merge_foreign(leftover, folder, kind)
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        _LOG.info("%s: removed %s, left by an interrupted run", folder, leftover.name)


def finish_placing(folder: Path, kind: FolderKind) -> bool:
    """Move the files of a new folder in ``PENDING`` to their places, and return whether that folder existed."""
    folder = folder.resolve()
    part, header = folder / PENDING, folder / kind.header
    if part.is_symlink() or not part.is_dir():
        return False
    # Any step may already be done. The old header goes first and the new one comes last, so that no mixture is read.
    old_header = part / _OLD_HEADER
    if (part / kind.header).exists() and header.exists():
        header.replace(old_header)
    if old_header.exists():  # no file has been moved
        _remove_files(folder, kind.own_files(folder, old_header) - {*files_of(part)})
        old_header.unlink()
    for name in sorted(filter(kind.may_have, files_of(part)), key=lambda name: (name == kind.header, name)):
        place = (folder / name).parent
        place.mkdir(parents=True, exist_ok=True)
        if not place.resolve().is_relative_to(folder):
            raise InputError(f"{place} leads out of {folder}", expected="a folder, not a link", fix="remove the link")
        (part / name).replace(folder / name)
    shutil.rmtree(part)
    return True


def _place(part: Path, folder: Path, kind: FolderKind) -> None:
    replaceable = True
    if folder.is_dir():
        # A mount point, a folder of another user, and one that this process works in stay the same folder.
        is_own = part.parent == folder.parent and folder.stat().st_uid == os.geteuid()
        replaceable = is_own and not Path.cwd().is_relative_to(folder)
        shutil.copystat(folder, part)
    if replaceable:
        try:
            part.rename(folder)  # succeeds if there is nothing, or an empty folder
            return
        except OSError as error:
            if not folder.is_dir():
                raise
            _LOG.debug("%s: not renamed: %s", folder, error)
    kind.check_place(folder)  # again, because others may have added files
    own = kind.own_files(folder)
    if own and replaceable and _link_foreign(folder, part, own) and exchange(part, folder):
        # Now ``part`` is the older folder, which the caller removes.
        _merge_foreign(part, folder, kind, newer=True)
    else:
        part.rename(folder / PENDING)
        finish_placing(folder, kind)


def _link_foreign(folder: Path, part: Path, own: set[str]) -> bool:
    """Link the files of other programs into the new folder. Return False if this fails or there are too many files."""
    foreign = list(islice((name for name in files_of(folder) if name not in own), _MOST_LINKED + 1))
    if len(foreign) > _MOST_LINKED:
        return False
    only_own = _folders_of(own) - _folders_of(foreign)
    try:
        for place, _, _ in os.walk(folder):
            inner = Path(place).relative_to(folder)
            if inner not in only_own and not (part / inner).exists():
                (part / inner).mkdir()
                shutil.copystat(place, part / inner)
        for name in foreign:
            os.link(folder / name, part / name, follow_symlinks=False)
    except OSError as error:
        _LOG.debug("%s: files are moved one by one: %s", folder, error)
        return False
    return True


def _merge_foreign(old: Path, folder: Path, kind: FolderKind, newer: bool = False) -> None:
    """Move other programs' files from the old folder to the new one, unless the new one has them.

    With ``newer``, they also replace existing files, because they may have changed since they were linked.
    """
    own = kind.own_files(old)
    for name in list(files_of(old)):
        if name not in own and folder.is_dir() and (newer or not os.path.lexists(folder / name)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (old / name).replace(folder / name)  # does nothing if both are links to one file


def _remove_files(folder: Path, names: set[str]) -> None:
    """Remove files, and then the folders that have become empty."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    for inner in sorted(_folders_of(names), key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError):  # not empty, or missing
            (folder / inner).rmdir()


def _folders_of(names: Iterable[str]) -> set[Path]:
    return {parent for name in names for parent in Path(name).parents if parent != Path()}


def exchange(one: Path, other: Path) -> bool:
    """Swap two files or folders atomically. Return False, without a change, if the file system does not support it."""
    if _RENAMEAT2 is None:
        return False
    if _RENAMEAT2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))
