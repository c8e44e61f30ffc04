"""Open text files, which may be gzipped, and detect their encoding."""

import codecs
import gzip
import io
import logging
import zlib
from pathlib import Path
from typing import IO, Any, cast

from xmc_tf.common.errors import InputError

_LOG = logging.getLogger(__name__)
_PIECE = 1 << 20
_MOST_STRAY = 0.05  # share of the characters outside ASCII that may be damaged in UTF-8
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_LINES, _LONGEST_LINE = 20, 1 << 20  # by which a format is detected
_LARGEST_RATIO, LEAST_BOMB = 100, 1 << 26


class _Unpacked(gzip.GzipFile):
    """A gzipped file; reading raises `InputError` if it is damaged."""

    def read(self, *size: Any) -> bytes:
        return self._checked(super().read, *size)

    def read1(self, *size: Any) -> bytes:
        return self._checked(super().read1, *size)

    def readline(self, *size: Any) -> bytes:
        return self._checked(super().readline, *size)

    def _checked(self, read: Any, *size: Any) -> bytes:
        try:
            content = cast(bytes, read(*size))
            self._unpacked = getattr(self, "_unpacked", 0) + len(content)
            packed = cast(IO[bytes], self.fileobj).tell()  # bytes that have been read
            if self._unpacked > max(LEAST_BOMB, _LARGEST_RATIO * packed):
                raise InputError(
                    f"{self.name!s} unpacks to more than {_LARGEST_RATIO} times its size",
                    expected="texts, which gzip compresses to about a tenth",
                    received=f"at least {self._unpacked:,} bytes",
                    fix="if this is intended, unpack it first (gunzip)",
                )
            return content
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            problem = f"{self.name!s} is damaged: {error}"
            raise InputError(problem, expected="a complete gzip file", fix="copy it again") from None


def is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def opened(path: Path) -> IO[bytes]:
    """Open a file for reading; gzipped files are decompressed during reading."""
    return cast(IO[bytes], _Unpacked(path)) if is_packed(path) else path.open("rb")


def opened_text(path: Path, encoding: str, newline: str | None = None) -> IO[str]:
    """Open a text file for reading; gzipped files are decompressed during reading."""
    return io.TextIOWrapper(opened(path), encoding=encoding, errors="replace", newline=newline)


def first_lines(path: Path) -> tuple[bytes, list[bytes]]:
    """Return the first bytes and the first (decompressed) lines of a file, from which its format is detected."""
    with path.open("rb") as file:
        head = file.read(4096)
        file.seek(0)
        lines: Any = _Unpacked(path, fileobj=file) if head.startswith(b"\x1f\x8b") else file
        return head, [line for _ in range(_LINES) if (line := lines.readline(_LONGEST_LINE))]


def unpacked_size(path: Path) -> int:
    """Return the size of a file; for gzipped files, estimate the decompressed size."""
    return path.stat().st_size * (4 if is_packed(path) else 1)


def text_encoding(path: Path, given: str | None = None) -> str:
    """Return the encoding ``given``, or detect UTF-16, UTF-8 or, with a warning, Windows-1252 or Latin-1."""
    if given:
        return _checked(given)
    with path.open("rb") as file:
        head = file.read(_PIECE)
        for mark, name in _MARKS:
            if head.startswith(mark):
                return name
        if zeros := head[:4096].count(0):
            even = head[:4096:2].count(0)
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


def encoding_of(path: Path, given: str | None = None) -> str:
    """Return the encoding of a file; that of a gzipped file is UTF-8 unless it is given."""
    return "utf-8-sig" if is_packed(path) and not given else text_encoding(path, given)


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
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        while piece := file.read(_PIECE):
            stray += sum(0xDC80 <= ord(character) <= 0xDCFF for character in piece if not character.isascii())
            others += sum(not character.isascii() for character in piece)
    if stray <= _MOST_STRAY * others:
        _LOG.warning(
            "%s: %s of %s characters outside ASCII are not UTF-8 and become U+FFFD", path, f"{stray:,}", f"{others:,}"
        )
        return "utf-8"
    encoding, undefined = "cp1252", bytes((0x81, 0x8D, 0x8F, 0x90, 0x9D))  # in Windows-1252
    with path.open("rb") as content:
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
