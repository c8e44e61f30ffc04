"""Headers of our folders: a JSON file that says what the folder is, and of which version."""

import json
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError


def read_header(path: Path, format: str, version: int, *, of: str, fix: str) -> dict[str, Any]:
    """Reads a header, and refuses what is none, or of another kind of folder or version.

    Args:
        path: the JSON file.
        format: what its "format" must be.
        version: what its "version" must be.
        of: what the folder is the folder of, for the message.
        fix: what to do when the folder is damaged.
    """
    folder = path.parent
    if not path.is_file():
        raise InputError(
            f"{path} does not exist",
            expected=f"the folder of {of}",
            received="a folder without it" if folder.is_dir() else "no folder of that name",
        )
    try:
        header = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path} is not JSON", expected="the file as it was saved", received=str(error)) from None
    if not isinstance(header, dict) or header.get("format") != format:
        raise InputError(f"{path} does not hold what it should", expected=f'"format": "{format}"', fix=fix)
    if header.get("version") != version:
        raise InputError(
            f"{path} has a version that is unknown here",
            expected=str(version),
            received=repr(header.get("version")),
            fix=f"read it with the version of xmc_tf that wrote it, or {fix.rsplit(' or ', 1)[-1]}",
        )
    return header
