"""Renames that Linux has and Python does not."""

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_NO_REPLACE, _EXCHANGE = 1, 2
_RENAMEAT2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
# Kernels, file systems (NFS, some of FUSE) and mount points that cannot do it answer with one of these.
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES}


def exchange(one: Path, other: Path) -> bool:
    """Swap two files or folders in one step; at every moment both names exist.

    Returns:
        False where the file system cannot do it; nothing has changed then.
    """
    return _rename(one, other, _EXCHANGE)


def rename_to_free_name(source: Path, target: Path) -> bool:
    """Rename a file or folder unless something has the new name, which a plain rename would replace.

    Returns:
        False where the name is taken; nothing has changed then.
    """
    try:
        if _rename(source, target, _NO_REPLACE):
            return True
    except FileExistsError:
        return False
    # Without the system call there is a moment between the look and the rename.
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
