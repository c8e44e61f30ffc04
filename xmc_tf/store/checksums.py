"""Checksums of a model's files. The model's header records them, and reading a file verifies them."""

import json
import mmap
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_unchanged_json
from xmc_tf.common.threads import thread_count

MODEL_HEADER = "params.json"
MODEL_FORMAT = "xmc_tf.model"

MAGIC = b"PK\x03\x04"  # at the beginning of an archive, and of each of its members
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
HEAD_BYTES = _LOCAL_HEADER.size  # of the header of a member, without its name
_READ = 1 << 20
# Errors of zipfile and the modules below it: RuntimeError for a password, its subclass NotImplementedError for an
# unknown compression.
_UNREADABLE: tuple[type[Exception], ...] = (zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, zlib.error)
_UNREADABLE += (RuntimeError, ValueError, EOFError, OSError)
_CHECKED_FIRST = 4 << 20  # files up to this length are compared before they are used
_FIX_MODEL = "copy the model again from where it is intact, or train it again"
_FIX_EXPORT = "copy the export again from where it is intact, or export the model again"
_FIXES = {
    MODEL_HEADER: _FIX_MODEL,
    "prepared.json": "copy the folder again, or prepare the interactions again",
    "store.json": "copy the folder again, or tokenize again",
}
_PIECE = 1 << 26  # large pieces mean few waits for the GIL, while other threads use what is checked
_POLYNOMIAL = 0xEDB88320  # of zip archives, with the highest power in the lowest bit
_ONE = 1 << 31
_RECORD = re.compile(r"[0-9a-f]{8}")


def crc_of_file(path: Path) -> str:
    """Return the CRC-32 of a file's bytes as 8 hex digits; of a long file, the CRC-32 of those of its pieces."""
    starts = range(0, path.stat().st_size, _PIECE)
    if len(starts) < 2:
        return f"{crc_of_range(path)[0]:08x}"
    with ThreadPoolExecutor(thread_count(-1)) as pool:
        crcs = pool.map(lambda start: crc_of_range(path, start, start + _PIECE)[0], starts)
        return f"{zlib.crc32(b''.join(crc.to_bytes(4, 'little') for crc in crcs)):08x}"


def record_files(folder: Path, exclude: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the records of a folder's files except ``exclude``, by name."""
    left_out = set(exclude)
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = sorted(paths.keys() - left_out)
    with ThreadPoolExecutor(thread_count(-1)) as pool:
        checksums = pool.map(lambda name: crc_of_file(paths[name]), names)
        return {
            name: {"bytes": paths[name].stat().st_size, "crc32": checksum}
            for name, checksum in zip(names, checksums, strict=True)
        }


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


def crc_of_range(path: Path, begin: int = 0, end: int | None = None) -> tuple[int, int]:
    """Return the CRC-32 of a range of a file, and the number of its bytes that exist."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        end = size if end is None else min(end, size)
        crc = 0
        # Mapped piece by piece, so that no more than a piece counts as memory of this process. Some network disks can
        # only be mapped privately.
        for start in range(begin - begin % mmap.ALLOCATIONGRANULARITY, end, _PIECE):
            length = min(_PIECE, end - start)
            with (
                mmap.mmap(file.fileno(), length, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=start) as content,
                memoryview(content) as view,
                view[max(begin - start, 0) :] as piece,
            ):
                crc = zlib.crc32(piece, crc)
        return crc, max(end - begin, 0)


def crc_of_all(parts: Iterable[tuple[int, int]]) -> int:
    """Return the CRC-32 of concatenated parts from each part's CRC-32 and number of bytes."""
    total = 0
    for crc, length in parts:
        total = _product(_power_of_x(8 * length), total) ^ crc
    return total


def _product(a: int, b: int) -> int:
    """Return the product of two polynomials modulo the CRC-32 polynomial."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _power_of_x(exponent: int) -> int:
    power, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power


def archive_problem(path: Path, *, thorough: bool = False) -> InputError | None:
    """Return an error if an archive is damaged. Without ``thorough``, check only uncompressed members."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb", buffering=0) as file:
            for info in archive.infolist():
                if info.compress_type == zipfile.ZIP_STORED:
                    file.seek(max(info.header_offset, 0))
                    start = data_start(info, file.read(HEAD_BYTES))
                    crc, length = crc_of_range(path, start, start + info.file_size)
                    if length < info.file_size:
                        raise EOFError(f"{info.filename} ends {info.file_size - length:,} bytes too early")
                elif thorough:
                    with archive.open(info) as member:  # zipfile compares the checksum at the end
                        while member.read(_READ):
                            pass
                    continue
                else:
                    continue
                if crc != info.CRC:
                    problem = f"the content of its member {info.filename} has changed since it was saved"
                    expected, received = f"checksum {info.CRC:08x} (CRC-32)", f"checksum {crc:08x}"
                    return InputError(
                        f"{path} is damaged: {problem}", expected=expected, received=received, fix=_FIX_MODEL
                    )
    except _UNREADABLE as error:
        if thorough:
            return InputError(f"{path} is damaged", expected="an .npz archive", received=str(error), fix=_FIX_MODEL)
    return None


def data_start(info: zipfile.ZipInfo, head: bytes) -> int:
    """Return the offset of a member's data. Its header (``head``) may be longer than the archive's directory says."""
    if info.header_offset < 0 or len(head) < HEAD_BYTES or head[:4] != MAGIC:
        raise zipfile.BadZipFile(f"the header of {info.filename[:100]} is not where the archive's directory says")
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(head)
    return info.header_offset + HEAD_BYTES + name_length + extra_length
