from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json


def read_header(path: Path, format: str, *versions: int, of: str, fix: str) -> dict[str, Any]:
    """Read a folder's JSON header, and check its format and version. ``of`` names the folder's content in errors."""
    if not path.exists():
        received = "a folder without it" if path.parent.is_dir() else "no folder of that name"
        raise InputError(f"{path} does not exist", expected=f"the folder of {of}", received=received)
    header: dict[str, Any] = read_json(path, expected="the file as it was saved", fix=fix)
    if header.get("format") != format:
        raise InputError(f"{path} has unexpected content", expected=f'"format": "{format}"', fix=fix)
    if header.get("version") not in versions:
        expected, received = " or ".join(map(str, versions)), repr(header.get("version"))
        fix = f"read it with the version of xmc_tf that wrote it, or {fix.rsplit(' or ', 1)[-1]}"
        raise InputError(f"{path} has an unknown version", expected=expected, received=received, fix=fix)
    return header
