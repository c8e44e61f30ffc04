"""Checksums of a model's files. The model's header records them, and reading a file verifies them."""

import json
import mmap
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_unchanged_json
from xmc_tf.common.threads import thread_count

MODEL_HEADER = "params.json"
MODEL_FORMAT = "xmc_tf.model"

_FIX_MODEL = "copy the model again from where it is intact, or train it again"
_FIX_EXPORT = "copy the export again from where it is intact, or export the model again"
_FIXES = {
    MODEL_HEADER: _FIX_MODEL,
    "prepared.json": "copy the folder again, or prepare the interactions again",
    "store.json": "copy the folder again, or tokenize again",
}
_PIECE = 1 << 26  # large pieces mean few waits for the GIL, while other threads use what is checked
_RECORD = re.compile(r"[0-9a-f]{8}")


def crc_of_file(path: Path) -> str:
    """Return the CRC-32 of a file's bytes as 8 hex digits; of a long file, the CRC-32 of those of its pieces."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size

        def crc(start: int) -> int:
            # Mapped piece by piece, so that no more than a piece counts as memory of this process. Some network disks
            # can only be mapped privately.
            length = min(_PIECE, size - start)
            with mmap.mmap(file.fileno(), length, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=start) as content:
                return zlib.crc32(content)

        if size <= _PIECE:
            return f"{crc(0) if size else 0:08x}"
        with ThreadPoolExecutor(thread_count(-1)) as pool:
            crcs = pool.map(crc, range(0, size, _PIECE))
            return f"{zlib.crc32(b''.join(one.to_bytes(4, 'little') for one in crcs)):08x}"


def record_file(path: Path) -> dict[str, Any]:
    """Return the size and the checksum of a file."""
    return {"bytes": path.stat().st_size, "crc32": crc_of_file(path)}


def record_files(folder: Path, exclude: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the records of a folder's files except ``exclude``, by name."""
    left_out = set(exclude)
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = sorted(paths.keys() - left_out)
    with ThreadPoolExecutor(thread_count(-1)) as pool:
        return dict(zip(names, pool.map(lambda name: record_file(paths[name]), names), strict=True))


def check_file(path: Path, record: Mapping[str, Any], fix: str, *, all_bytes: bool = True) -> None:
    """Raise InputError if a file differs from its record. Without ``all_bytes``, compare only the size."""
    own = Records(path.parent, path, {path.name: (record["bytes"], record["crc32"])}, fix=fix)
    if (problem := own.problem(path.name, all_bytes=all_bytes)) is not None:
        raise problem


def checksum_of(content: Mapping[str, Any]) -> str:
    """Return the checksum of a header without its "checksum" entry. It does not depend on whitespace or key order."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    return f"{zlib.crc32(json.dumps(rest, sort_keys=True, separators=(',', ':')).encode()):08x}"


def is_unchanged(content: Mapping[str, Any]) -> bool | None:
    """Return whether a header still matches its checksum, or None if it has none."""
    return None if "checksum" not in content else content["checksum"] == checksum_of(content)


@dataclass(frozen=True)
class Records:
    folder: Path
    header: Path
    files: Mapping[str, tuple[int, str]]  # length and CRC-32 by relative posix path
    unchanged: bool | None = None  # since the header was saved; None if unknown
    fix: str = ""  # default: chosen by the header's name

    @classmethod
    def read(cls, folder: Path, header: str = MODEL_HEADER) -> "Records | None":
        """Return the records in a folder's header, or None if it is missing, unreadable, foreign or without records."""
        path = folder / header
        if not path.is_file():
            return None
        try:
            content = cls.parse(path)
        except InputError:
            return None  # the reader of the header reports it
        if "files" not in content:
            return None
        if header == MODEL_HEADER and not str(content.get("format")).startswith("xmc_tf."):
            return None
        return cls(folder, path, _checked_records(content["files"], path), is_unchanged(content))

    @staticmethod
    def parse(path: Path) -> dict[str, Any]:
        content: dict[str, Any] = read_unchanged_json(path, fix=_FIX_MODEL)
        return content

    @classmethod
    def around(cls, place: Path) -> "Records | None":
        """Return the model's records of the files at or below ``place``, or None if ``place`` is not in a model."""
        named, real = Path(os.path.abspath(place)), Path(os.path.realpath(place))
        if not named.exists() or not os.path.samefile(named, place):  # ".." behind a link
            named = real
        for start in dict.fromkeys((named, real)):
            for folder in reversed((start, *start.parents[:3])):  # a model also has the records of its parts
                records = cls.read(folder)
                if records is not None and (files := records._below(start)):
                    return cls(records.folder, records.header, files, records.unchanged)
        return None

    def problem(self, name: str, *, all_bytes: bool = True) -> InputError | None:
        """Return an error if a file differs from its record. Without ``all_bytes``, compare only the size."""
        path, (size, checksum) = self.folder / name, self.files[name]

        def wrong(problem: str, expected: str, received: str = "") -> InputError:
            fix = self.fix or _FIXES.get(self.header.name, _FIX_EXPORT)
            if self.unchanged is False:  # either may be wrong
                fix += f"; {self.header.name} has changed too"
            return InputError(f"{path} {problem}", expected=expected, received=received, fix=fix)

        if not path.is_file():
            other = "something that is not a file" if path.exists() else ""
            return wrong("is missing", f"a file of {size:,} bytes", other)
        if (found := path.stat().st_size) != size:
            return wrong("is damaged: its size has changed since it was saved", f"{size:,} bytes", f"{found:,} bytes")
        if not all_bytes:
            return None
        try:
            now = crc_of_file(path)
        except OSError as error:
            return wrong(f"cannot be read: {error.strerror}", f"{size:,} bytes")
        if now == checksum:
            return None
        problem = "is damaged: its content has changed since it was saved"
        return wrong(problem, f"checksum {checksum} (CRC-32)", f"checksum {now}")

    def check(self, names: Iterable[str]) -> None:
        """Raise InputError if one of the files differs from its record."""
        with ThreadPoolExecutor(thread_count(-1)) as pool:
            for problem in pool.map(self.problem, sorted(names)):
                if problem is not None:
                    raise problem

    def _below(self, place: Path) -> dict[str, tuple[int, str]]:
        inside = place.relative_to(self.folder).as_posix()
        return {
            name: record
            for name, record in self.files.items()
            if inside in (".", name) or name.startswith(f"{inside}/")
        }


def verify(place: Path | None, *, skip: tuple[str, ...] = (), records: Records | None = None) -> None:
    """Compare the files of a part of a model with their records; raise InputError if one differs.

    Files with the endings ``skip`` are not read. ``records`` are, by default, those found around ``place``.
    """
    known = records or (None if place is None else Records.around(place))
    if known is not None:
        known.check(name for name in known.files if not name.endswith(skip))


def _checked_records(files: Any, header: Path) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for name, record in files.items() if isinstance(files, dict) else [("files", None)]:
        inside = not name.startswith("/") and "\0" not in name and ".." not in name.split("/")
        one = record if isinstance(record, dict) else {}
        size, crc = one.get("bytes"), one.get("crc32")
        if not inside or type(size) is not int or not isinstance(crc, str) or not _RECORD.fullmatch(crc):
            raise InputError(
                f"{header}: the record of the file {name!r} cannot be read",
                expected='a path inside the folder, with "bytes" (a whole number) and "crc32" (8 hex digits)',
                received=json.dumps(record)[:100],
                fix="copy the model again",
            )
        found[name] = size, crc
    return found
