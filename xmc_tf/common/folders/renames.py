"""A rename of Linux that Python does not offer."""

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_EXCHANGE = 2
_RENAMEAT2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
# Errors of kernels, file systems (NFS, some of FUSE) and mount points that do not support it.
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES}


def exchange(one: Path, other: Path) -> bool:
    """Swap two files or folders atomically.

    Returns:
        False if the file system cannot do it; then nothing has changed.
    """
    if _RENAMEAT2 is None:
        return False
    if _RENAMEAT2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))
