"""Files that the user names: there, a file, and readable, or said at once."""

import difflib
import os
from pathlib import Path

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


def _neighbour(path: Path) -> str:
    """A file of nearly that name in the same folder, which is what the user will have meant."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either"
    close = difflib.get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=1)
    return f"did you mean {path.parent / close[0]}?" if close else "check the name"
