import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json

_MOST_NAMED = 5
_NOT_OURS = "(?!)"  # a pattern that nothing matches


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that xmc_tf writes. Only the files that it describes may be replaced or removed."""

    what: str  # its name in messages, such as "a model of xmc_tf"
    header: str  # the relative path of the file that identifies such a folder; it is written last
    recognises: Callable[[Mapping[str, Any]], bool]  # the content of a header, whose "files" lists all other files
    parts: Mapping[str, str | None]  # pattern of a name → pattern of the paths inside a folder, None for a file
    is_model: bool = True  # a whole model or export, in which no other one belongs

    @property
    def the(self) -> str:
        """The name of this kind in messages about a specific folder, such as "the model"."""
        return f"the {self.what.partition(' ')[2].partition(' of ')[0]}"

    def has_part(self, name: str) -> bool:
        """Return whether a top-level name is a part of this kind. Case is ignored, as on some file systems."""
        return any(re.fullmatch(pattern, name, re.IGNORECASE) for pattern in self.parts)

    def own_files(self, folder: Path, header: Path | None = None) -> set[str]:
        """Return the relative paths of xmc_tf's files in ``folder``; an empty set if it has no header of this kind."""
        content = self._read(header or folder / self.header)
        if content is None:
            return set()
        listed = content.get("files")
        if isinstance(listed, dict):
            return {self.header, *filter(self.may_have, listed)}
        return set(self.possible_files(folder))

    def possible_files(self, folder: Path) -> Iterator[str]:
        """Yield the relative paths of the files in ``folder`` whose names are possible in this kind of folder."""
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if self._inside(entry.name) != _NOT_OURS]
        for entry in found:
            names = [f"{entry.name}/{name}" for name in files_of(folder / entry.name)] if _is_folder(entry) else []
            yield from filter(self.may_have, names or [entry.name])

    def may_have(self, name: str) -> bool:
        """Return whether this kind of folder can contain a file at this relative path."""
        top, _, rest = name.partition("/")
        inside = self._inside(top)
        if inside is None or inside == _NOT_OURS:
            return inside is None and not rest
        return bool(re.fullmatch(inside, rest)) and ".." not in rest.split("/")

    def is_at(self, folder: Path) -> bool:
        return self._read(folder / self.header) is not None

    def check_place(self, folder: Path, fix: str = "use another folder") -> None:
        """Raise InputError if writing to the folder would replace files of other programs."""
        if not os.path.lexists(folder):
            return
        if not folder.is_dir():
            what = "a file" if folder.exists() else "a link to a folder that does not exist"
            raise InputError(f"{folder} is {what}", expected="a folder", fix=fix)
        own = self.own_files(folder)
        in_the_way = [name for name in self.possible_files(folder) if name not in own] + self._of_other_form(folder)
        if not in_the_way:
            return
        more = len(in_the_way) - _MOST_NAMED
        problem = f"{folder} holds files that are not part of {self.what} and would be replaced"
        expected = f"a new folder, an empty one, {self.what}, or files with other names"
        received = ", ".join(sorted(in_the_way)[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        raise InputError(problem, expected=expected, received=received, fix=f"move these files elsewhere, or {fix}")

    def _inside(self, top: str) -> str | None:
        """Return the pattern of paths inside a top-level entry: None for a file, ``_NOT_OURS`` for unknown entries."""
        return next((inside for name, inside in self.parts.items() if re.fullmatch(name, top)), _NOT_OURS)

    def _of_other_form(self, folder: Path) -> list[str]:
        """Return the entries that are folders where xmc_tf writes a file, or files where it writes a folder."""
        with os.scandir(folder) as entries:
            found = [(entry.name, _is_folder(entry), self._inside(entry.name)) for entry in entries]
        return [name for name, is_folder, inside in found if inside != _NOT_OURS and is_folder == (inside is None)]

    def _read(self, header: Path) -> Mapping[str, Any] | None:
        """Return the content of a header, or None if it is unreadable or of another kind."""
        try:
            content: dict[str, Any] = read_json(header)
        except (InputError, OSError):
            return None
        return content if self.recognises(content) else None


def files_of(folder: Path) -> Iterator[str]:
    """Yield the relative paths of all files below a folder. Links are included but not followed."""
    for place, folders, names in os.walk(folder):
        relative = os.path.relpath(place, folder)
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in [*names, *linked]:
            yield name if relative == "." else f"{relative}/{name}"


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir(follow_symlinks=False)
