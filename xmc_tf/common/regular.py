import difflib
import fcntl
import os
import stat
from pathlib import Path
from typing import BinaryIO

from xmc_tf.common.errors import InputError

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
_KINDS |= dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")


def existing_file(path: str | Path, what: str) -> Path:
    """Return ``path`` if it is a readable file. ``what`` names its purpose in errors, such as "labels"."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{what}: {path} is a folder", expected="a file", fix="name a file inside it")
    if not path.exists():
        fix = f"check the path: there is no folder {path.parent} either"
        if path.parent.is_dir():
            close = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1)
            fix = f"did you mean {path.parent / close[0]}?" if close else "check the name"
        raise InputError(f"{what}: {path} does not exist", expected="an existing file", fix=fix)
    if not path.is_file():
        problem, fix = f"{what}: {path} is not a regular file", "save its content to a file first"
        expected = "a file that can be read repeatedly and at any position"
        raise InputError(problem, expected=expected, received="a pipe or a device", fix=fix)
    if not os.access(path, os.R_OK):
        raise InputError(f"{what}: {path} is not readable", fix="check its permissions")
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:  # of a failing disk, whose errors name no file
        raise OSError(error.errno, error.strerror, str(path)) from None
    return path


def open_regular(path: str | Path, what: str = "", *, fix: str = "") -> BinaryIO:
    """Open a regular file for reading. Refuse anything else at once: opening a pipe would wait for a writer."""
    name = f"{what}: {path}" if what else str(path)
    try:
        # Checked before opening, which would wake up a pipe's writer, and again afterwards, in case it was replaced.
        kind = os.stat(path).st_mode
        if stat.S_ISREG(kind):
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            kind = os.fstat(file).st_mode
            if stat.S_ISREG(kind):
                return os.fdopen(file, "rb")
            os.close(file)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{name} does not exist", expected="an existing file", fix=fix) from None
    except (OSError, ValueError) as error:  # no permission, a circle of links, a name that is too long
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{name} cannot be opened", expected="a readable file", received=reason, fix=fix) from None
    received = _KINDS.get(stat.S_IFMT(kind), "something else")
    raise InputError(f"{name} is not a regular file", expected="a regular file", received=received, fix=fix)


def lock_file(handle: int) -> bool:
    """Lock an open file. Return False if another process has locked it or the file system does not support locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
