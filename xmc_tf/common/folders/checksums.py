"""Checksums of a model's files. The model's header records them, and reading a file verifies them."""

import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.archives import archive_problem
from xmc_tf.common.files.crc import crc_of_range
from xmc_tf.common.files.json_files import read_unchanged_json
from xmc_tf.common.threads import thread_count

MODEL_HEADER = "params.json"
MODEL_FORMAT = "xmc_tf.model"

_CHECKED_FIRST = 4 << 20  # files up to this length are compared before they are used
_FIX_MODEL = "copy the model again from where it is intact, or train it again"
_FIX_EXPORT = "copy the export again from where it is intact, or export the model again"
_FIXES = {MODEL_HEADER: _FIX_MODEL, "prepared.json": "copy the folder again, or prepare the interactions again"}
_RECORD = re.compile(r"[0-9a-f]{8}")


def crc_of_file(path: Path) -> str:
    """Return the CRC-32 of a file's bytes as 8 hex digits."""
    return f"{crc_of_range(path)[0]:08x}"


def record_files(
    folder: Path, exclude: Iterable[str] = (), known: Mapping[str, dict[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the records of a folder's files except ``exclude``, by name. Records in ``known`` are reused."""
    left_out, known = set(exclude), known or {}
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = sorted(paths.keys() - left_out)
    with ThreadPoolExecutor(thread_count(-1)) as pool:
        checksums = list(pool.map(lambda name: "" if name in known else crc_of_file(paths[name]), names))
    return {
        name: known.get(name) or {"bytes": paths[name].stat().st_size, "crc32": checksum}
        for name, checksum in zip(names, checksums, strict=True)
    }


def content_record(content: bytes) -> dict[str, int]:
    """Return the record of a file with this content: its length and its CRC-32 as integers."""
    return {"bytes": len(content), "crc32": zlib.crc32(content)}


def is_content_record(record: Any) -> bool:
    return isinstance(record, dict) and all(type(record.get(key)) is int for key in ("bytes", "crc32"))


def check_content(path: Path, record: Mapping[str, int], fix: str, *, all_bytes: bool = True) -> None:
    """Raise InputError if a file differs from a ``content_record``. Without ``all_bytes``, compare only the size."""
    own = Records(path.parent, path, {path.name: (record["bytes"], f"{record['crc32']:08x}")}, fix=fix)
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
        if header == MODEL_HEADER and content.get("format") != MODEL_FORMAT:
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
            for folder in (start, *start.parents[:3]):
                records = cls.read(folder)
                if records is not None:
                    return cls(records.folder, records.header, records._below(start), records.unchanged)
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

    def _below(self, place: Path) -> dict[str, tuple[int, str]]:
        inside = place.relative_to(self.folder).as_posix()
        return {
            name: record
            for name, record in self.files.items()
            if inside in (".", name) or name.startswith(f"{inside}/")
        }


@contextmanager
def verified(
    place: Path | None,
    *,
    skip: tuple[str, ...] = (),  # suffixes of files that the block does not read
    archives: Iterable[Path] = (),  # mapped by the block; those without records have checksums of their own
    records: Records | None = None,  # default: those found around ``place``
) -> Iterator[None]:
    """Compare a part's files with their records while the block reads them; raise InputError if one differs.

    Short files are compared before the block.
    """
    first, then = _comparisons(place, skip, archives, records)
    if not first and not then:
        yield
        return
    pool = ThreadPoolExecutor(min(thread_count(-1), max(len(first), len(then))))
    try:
        _raise_first([pool.submit(compare) for compare in first])
        running = [pool.submit(compare) for compare in then]
        try:
            yield
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException:  # libraries in Rust raise errors that are not an Exception
            _raise_first(running)
            raise
        _raise_first(running)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_Comparison = Callable[[], InputError | None]


def _comparisons(
    place: Path | None, skip: tuple[str, ...], archives: Iterable[Path], records: Records | None
) -> tuple[list[_Comparison], list[_Comparison]]:
    """Return the comparisons to make before the block (of short files) and those to make while it runs."""
    if place is None:
        return [], []
    known = records or Records.around(place)
    found: list[tuple[int, _Comparison]] = []
    covered = set()
    if known is not None:
        for name, (size, _) in sorted(known.files.items()):
            if not name.endswith(skip):
                found.append((size, partial(known.problem, name)))
            covered.add(os.path.realpath(known.folder / name))
    for path in sorted(archives):
        if os.path.realpath(path) not in covered and path.is_file():
            found.append((path.stat().st_size, partial(archive_problem, path)))
    first = [compare for size, compare in found if size <= _CHECKED_FIRST]
    return first, [compare for size, compare in found if size > _CHECKED_FIRST]


def _raise_first(comparisons: Iterable[Future[InputError | None]]) -> None:
    for comparison in comparisons:
        problem = comparison.result()
        if problem is not None:
            raise problem from None


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
