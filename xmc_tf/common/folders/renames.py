"""Renames of Linux that Python does not offer."""

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_NO_REPLACE, _EXCHANGE = 1, 2
_RENAMEAT2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
# Errors of kernels, file systems (NFS, some of FUSE) and mount points that do not support it.
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES}


def exchange(one: Path, other: Path) -> bool:
    """Swap two files or folders atomically.

    Returns:
        False if the file system cannot do it; then nothing has changed.
    """
    return _rename(one, other, _EXCHANGE)


def rename_to_free_name(source: Path, target: Path) -> bool:
    """Rename a file or folder, unless the new name exists, which a plain rename would replace.

    Returns:
        False if the name exists; then nothing has changed.
    """
    try:
        if _rename(source, target, _NO_REPLACE):
            return True
    except FileExistsError:
        return False
    # Without the system call, check and rename are not atomic.
    if os.path.lexists(target):
        return False
    source.rename(target)
    return True


def _rename(source: Path, target: Path, flag: int) -> bool:
    if _RENAMEAT2 is None:
        return False
    if _RENAMEAT2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))
