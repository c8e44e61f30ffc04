"""Open text files, which may be compressed, and detect their encoding."""

import codecs
import gzip
import io
import logging
import zipfile
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO, Any, AnyStr, cast

from xmc_tf.common.errors import InputError
from xmc_tf.store.files import named_error

_LOG = logging.getLogger(__name__)
_PIECE, _BUFFER = 1 << 20, 1 << 16
_PACKINGS = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip"}
_MOST_STRAY = 0.05  # share of the characters outside ASCII that may be damaged in UTF-8
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
HEAD, _LINES, _LONGEST_LINE = 4096, 20, 1 << 20  # by which a format is detected
_LARGEST_RATIO, LEAST_BOMB = 100, 1 << 26
LARGEST_CELL = 1 << 26  # characters of a line, of a row, and bytes of a cell
_OF_BOTH = 0.2  # share of the zeros at the rarer of even and odd positions, in files that are no UTF-16


class _Plain(io.FileIO):
    """A file that is not compressed; the errors of a failing disk name it."""

    def readinto(self, buffer: Any) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise named_error(error, str(self.name)) from None


class _Unpacked(io.RawIOBase):
    """A compressed file; reading raises `InputError` if it is damaged."""

    def __init__(self, path: Path) -> None:
        member = _only_member(path) if packing(path) == "zip" else ""
        self.name, self._packed, self._unpacked = path, path.open("rb"), 0
        self._content: Any = gzip.GzipFile(fileobj=self._packed)
        if member:
            try:
                self._content = zipfile.ZipFile(self._packed).open(member)  # noqa: SIM115
            except NotImplementedError as error:
                raise InputError(
                    f"{path} cannot be unpacked: {error}", expected="the methods deflate, bzip2 or LZMA",
                    fix="unpack it, and name the table",
                ) from None  # fmt: skip

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._content.read(len(buffer))
        except (EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
            problem = f"{self.name!s} is damaged: {error}"
            raise InputError(problem, expected=f"a complete {packing(self.name)} file", fix="copy it again") from None
        self._unpacked += len(content)
        if self._unpacked > max(LEAST_BOMB, _LARGEST_RATIO * self._packed.tell()):
            raise InputError(
                f"{self.name!s} unpacks to more than {_LARGEST_RATIO} times its size",
                expected="texts, which gzip compresses to about a tenth",
                received=f"at least {self._unpacked:,} bytes",
                fix="if this is intended, unpack it first",
            )
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._content.close()
        self._packed.close()
        super().close()


def packing(path: Path) -> str:
    """Return the method by which a file is compressed; "" if it is not."""
    with io.BufferedReader(_Plain(path)) as file:
        head = file.read(6)
    return next((method for start, method in _PACKINGS.items() if head.startswith(start)), "")


def unpacked_name(path: Path) -> str:
    """Return the name of the file in a compressed file, whose ending says what it holds."""
    method = packing(path)
    return _only_member(path) if method == "zip" else path.stem if method else path.name


def _only_member(path: Path) -> str:
    """Return the name of the only table in a zip archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = [one for one in archive.infolist() if not one.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError):
        found = []
    # macOS adds files that are no content of the user's.
    found = [one for one in found if not one.filename.startswith("__MACOSX/") and Path(one.filename).name[0] != "."]
    names = [one.filename for one in found]
    if not names or "[Content_Types].xml" in names:
        raise InputError(f"{path} is an Excel file or another archive", fix="save it as CSV in UTF-8")
    if len(names) > 1 or found[0].flag_bits & 1:
        raise InputError(
            f"{path} cannot be read as a table", expected="an archive with one file, without a password",
            received=", ".join(names[:5]) + (", …" if len(names) > 5 else ""), fix="unpack it, and name one table",
        )  # fmt: skip
    return names[0]


def opened(path: Path) -> IO[bytes]:
    """Open a file for reading; compressed files are decompressed during reading."""
    return cast(IO[bytes], io.BufferedReader((_Unpacked if packing(path) else _Plain)(path), _BUFFER))


def opened_text(path: Path, encoding: str, newline: str | None = None) -> IO[str]:
    """Open a text file for reading; compressed files are decompressed during reading."""
    return io.TextIOWrapper(opened(path), encoding=encoding, errors="replace", newline=newline)


def lines_of(file: IO[AnyStr], path: Path) -> Iterator[AnyStr]:
    """Yield the lines of an open file. One that does not end, which would fill the memory, is an error."""
    for number in count(1):
        if not (line := file.readline(LARGEST_CELL + 1)):
            return
        if len(line) > LARGEST_CELL:
            raise InputError(
                f"{path}, line {number:,} is too long", expected=f"at most {LARGEST_CELL:,} characters",
                fix="check that it is a table",
            )  # fmt: skip
        yield line


def first_lines(path: Path) -> tuple[bytes, list[bytes]]:
    """Return the first bytes and the first lines of a file, decompressed, from which its format is detected."""
    with opened(path) as file:
        head = file.read(HEAD)
    with opened(path) as file:
        return head, [line for _ in range(_LINES) if (line := file.readline(_LONGEST_LINE))]


def unpacked_size(path: Path) -> int:
    """Return the size of a file; for compressed files, estimate the decompressed size."""
    return path.stat().st_size * (4 if packing(path) else 1)


def text_encoding(path: Path, given: str | None = None) -> str:
    """Return the encoding ``given``, or detect UTF-16, UTF-8 or, with a warning, Windows-1252 or Latin-1.

    A byte order mark is no part of the texts: ``given`` as utf-8, a file that has one is read as utf-8-sig.
    """
    encoding = _checked(given) if given else None
    with opened(path) as file:
        head = file.read(_PIECE)
        for mark, name in _MARKS:
            if head.startswith(mark) and (encoding is None or encoding[:5] == name[:5]):
                return name
        if encoding is not None:
            return encoding
        if zeros := head[:4096].count(0):
            even = head[:4096:2].count(0)
            if min(even, zeros - even) > _OF_BOTH * zeros:
                raise InputError(
                    f"{path} is not a text file", expected="text, such as CSV in UTF-8",
                    received=f"{zeros:,} bytes of zero in the first {len(head[:4096]):,}",
                    fix="save it as CSV in UTF-8",
                )  # fmt: skip
            return "utf-16-be" if even > zeros / 2 else "utf-16-le"
        decoder, piece = codecs.getincrementaldecoder("utf-8")(), head
        try:
            while piece:
                decoder.decode(piece)
                piece = file.read(_PIECE)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return _not_quite_utf8(path)
    return "utf-8"


def _checked(given: str) -> str:
    """Return the name of a text encoding; raise an error for other codecs of Python, such as rot13."""
    try:
        info = codecs.lookup(given)
        found = info.incrementaldecoder("replace").decode("text".encode(given), False) if info.incrementaldecoder else 0
    except (LookupError, UnicodeError, AssertionError, TypeError, ValueError, OSError, EOFError):
        found = None
    if not isinstance(found, str) or info.name in ("punycode", "unicode-escape", "raw-unicode-escape"):
        expected = "a text encoding, such as utf-8, latin-1, cp1252 or utf-16"
        raise InputError(f"unknown encoding {given!r}"[:100], expected=expected, fix="change --encoding")
    return info.name


def _not_quite_utf8(path: Path) -> str:
    """Return UTF-8 for a file with few invalid bytes, otherwise Windows-1252 or Latin-1."""
    stray = others = 0
    with io.TextIOWrapper(opened(path), "utf-8", errors="surrogateescape", newline="") as file:
        while piece := file.read(_PIECE):
            stray += sum(0xDC80 <= ord(character) <= 0xDCFF for character in piece if not character.isascii())
            others += sum(not character.isascii() for character in piece)
    if stray <= _MOST_STRAY * others:
        _LOG.warning(
            "%s: %s of %s characters outside ASCII are not UTF-8 and become U+FFFD", path, f"{stray:,}", f"{others:,}"
        )
        return "utf-8"
    encoding, undefined = "cp1252", bytes((0x81, 0x8D, 0x8F, 0x90, 0x9D))  # in Windows-1252
    with opened(path) as content:
        while part := content.read(_PIECE):
            if any(byte in part for byte in undefined):
                encoding = "latin-1"
                break
    _LOG.warning("%s is not UTF-8 and is read as %s (--encoding)", path, named(encoding))
    return encoding


def named(encoding: str) -> str:
    """Return the name of an encoding in its common spelling."""
    return {
        "utf-8": "UTF-8", "utf-8-sig": "UTF-8", "utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16",
        "cp1252": "Windows-1252", "latin-1": "Latin-1", "iso8859-1": "Latin-1",
    }.get(encoding, encoding)  # fmt: skip
