"""Kinds of folders that xmc_tf writes: their names, parts and headers."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.store.checksums import checksum_of, is_unchanged

_MOST_NAMED = 5
# Hidden files, notes, logs (PECOS's scripts write one into the model's folder), and what a new disk holds.
_KEPT = re.compile(r"\..*|README.*|.*\.log|lost\+found")


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that xmc_tf writes and replaces as a whole."""

    what: str  # its name in messages, such as "a model of xmc_tf"
    header: str  # the relative path of the file that identifies such a folder
    recognises: Callable[[Mapping[str, Any]], bool]  # the content of a header; its "files" may list all other files
    parts: str  # pattern of the names at the top of the folder
    is_model: bool = True  # a whole model or export, in which no other one belongs

    @property
    def the(self) -> str:
        """The name of this kind in messages about a specific folder, such as "the model"."""
        return f"the {self.what.partition(' ')[2].partition(' of ')[0]}"

    def has_part(self, name: str) -> bool:
        """Return whether a top-level name is a part of this kind. Case is ignored, as on some file systems."""
        return bool(re.fullmatch(self.parts, name, re.IGNORECASE)) and not _KEPT.fullmatch(name)

    def check_place(self, folder: Path, fix: str = "use another folder", name: str = "") -> None:
        """Raise InputError if replacing the folder, called ``name`` in errors, would remove files of others."""
        if not os.path.lexists(folder):
            return
        name = name or str(folder)
        if not folder.is_dir():
            what = "a file" if folder.exists() else "a link to a folder that does not exist"
            raise InputError(f"{name} is {what}", expected="a folder", fix=fix)
        if foreign := self._foreign(folder):
            more = len(foreign) - _MOST_NAMED
            raise InputError(
                f"{name} holds files that are not part of {self.what}",
                expected=f"a new folder, one with only hidden files, README and logs, or {self.what} to replace",
                received=", ".join(foreign[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else ""),
                fix=f"move these files elsewhere, or {fix}",
            )

    def _foreign(self, folder: Path) -> list[str]:
        """Return the paths in a folder that are not its own and would not stay if it was replaced."""
        content, found = self._read(folder), [name for name in os.listdir(folder) if not _KEPT.fullmatch(name)]
        if content is None:
            return sorted(found)
        if not isinstance(files := content.get("files"), dict):
            return []
        inside = ((top, folder / top) for top in found if self.has_part(top))
        paths = (
            f"{top}/{name}" if name else top
            for top, path in inside
            for name in (files_of(path) if path.is_dir() and not path.is_symlink() else [""])
        )
        return sorted({*paths} - {self.header, *files})

    def _read(self, folder: Path) -> Mapping[str, Any] | None:
        """Return the content of a folder's header, or None if it is unreadable or of another kind."""
        try:
            content: dict[str, Any] = read_json(folder / self.header)
        except (InputError, OSError):
            return None
        return content if self.recognises(content) else None


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
    if is_unchanged(header) is False:
        expected, received = f"checksum {header['checksum']}", checksum_of(header)
        raise InputError(f"{path} has changed since it was saved", expected=expected, received=received, fix=fix)
    return header


def files_of(folder: Path) -> Iterator[str]:
    """Yield the relative paths of all files below a folder. Links are included but not followed."""
    for place, folders, names in os.walk(folder):
        relative = os.path.relpath(place, folder)
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in [*names, *linked]:
            yield name if relative == "." else f"{relative}/{name}"
