"""Files that may be gzipped, read as bytes."""

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import IO, Any, cast

from xmc_tf.common.errors import InputError

_LINES, _LONGEST_LINE = 20, 1 << 20
_LARGEST_RATIO, LEAST_BOMB = 100, 1 << 28


class _Unpacked(gzip.GzipFile):
    """A gzipped file that raises `InputError` if it is damaged."""

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
            if self._unpacked > max(LEAST_BOMB, _LARGEST_RATIO * os.fstat(self.fileno()).st_size):
                raise InputError(
                    f"{self.name!s} is unpacked to more than {_LARGEST_RATIO} times its size",
                    expected="texts, which gzip packs to a tenth or so",
                    received=f"{self._unpacked:,} bytes and more",
                    fix="if the file is meant, unpack it first (gunzip)",
                )
            return content
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            expected = "a complete file, packed by gzip"
            raise InputError(f"{self.name!s} is damaged: {error}", expected=expected, fix="copy it again") from None


def is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def opened(path: Path) -> IO[bytes]:
    """Open a file for reading; a gzipped one is unpacked while it is read."""
    return cast(IO[bytes], _Unpacked(path)) if is_packed(path) else path.open("rb")


def opened_text(path: Path, encoding: str, newline: str | None = None) -> IO[str]:
    """Open a file of text for reading; a gzipped one is unpacked while it is read."""
    return io.TextIOWrapper(opened(path), encoding=encoding, errors="replace", newline=newline)


def first_lines(path: Path) -> tuple[bytes, list[bytes]]:
    """Return the first bytes of a file, and its first unpacked lines, from which its format is detected."""
    with path.open("rb") as file:
        head = file.read(4096)
        file.seek(0)
        lines: Any = _Unpacked(path, fileobj=file) if head.startswith(b"\x1f\x8b") else file
        return head, [line for _ in range(_LINES) if (line := lines.readline(_LONGEST_LINE))]


def unpacked_size(path: Path) -> int:
    """Return the size of a file; for a gzipped one, an estimate."""
    return path.stat().st_size * (4 if is_packed(path) else 1)
