"""Files that the user names: there, a file, and readable, or said at once."""

import difflib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from xmc_tf.common.errors import InputError


def existing_file(path: str | Path, what: str) -> Path:
    """Gives ``path`` back when it is a file that can be read.

    Args:
        path: what the user gave.
        what: what the file is for, for the message ("labels", "parameters").

    Raises:
        InputError: when nothing is there, or a folder, or something that may not be read.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{what}: {path} is a folder", expected="a file", fix="name a file inside it")
    if not path.exists():
        raise InputError(f"{what}: {path} does not exist", expected="an existing file", fix=_neighbour(path))
    if not path.is_file():
        raise InputError(
            f"{what}: {path} is not an ordinary file",
            expected="a file that can be read more than once and from any place",
            received="a pipe or a device",
            fix="write it to a file first",
        )
    if not os.access(path, os.R_OK):
        raise InputError(f"{what}: {path} may not be read", fix="check its permissions")
    return path


def open_regular(path: str | Path, what: str = "", *, fix: str = "") -> BinaryIO:
    """Open a regular file for reading, and never wait for anything else that has its name.

    Opening a pipe waits for somebody to write into it, and reading a device may never end.

    Args:
        path: the file.
        what: what the file is for, for the message.
        fix: what the user can do, where something else is in its place.

    Raises:
        InputError: nothing has that name, or something that is not a regular file, or it cannot be opened.
    """
    name = f"{what}: {path}" if what else str(path)
    try:
        # Looked at first, since opening a pipe already wakes up its writer; then again, since it may have changed.
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
    raise InputError(f"{name} is not a regular file", expected="a regular file", received=_kind_of_file(kind), fix=fix)


def _kind_of_file(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


def _neighbour(path: Path) -> str:
    """Return a file of nearly that name in the same folder, which is what the user will have meant."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either"
    close = difflib.get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=1)
    return f"did you mean {path.parent / close[0]}?" if close else "check the name"
