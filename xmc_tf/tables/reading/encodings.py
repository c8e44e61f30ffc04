"""Find the encoding of a text file from its bytes: a byte order mark, valid UTF-8, or an encoding of Windows."""

import codecs
from pathlib import Path

from xmc_tf.common.errors import InputError

_PIECE = 1 << 20
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def text_encoding(path: Path, given: str | None = None) -> str:
    """Return the name of a file's encoding, for :func:`open`.

    UTF-16 without a byte order mark is recognised by its zero bytes. What is not UTF-8 is taken for Windows-1252, or
    for Latin-1 if it has bytes that do not exist there; no file can prove these two.

    Args:
        path: the file; it is read to its end, or to the first byte that is not UTF-8.
        given: the name that the user gives; it is only checked.
    """
    if given:
        try:
            return codecs.lookup(given).name
        except LookupError:
            raise InputError(
                f"unknown encoding {given!r}", expected="such as utf-8, latin-1, cp1252 or utf-16", fix="--encoding"
            ) from None
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
            return _of_windows(path)
    return "utf-8"


def _of_windows(path: Path) -> str:
    undefined = bytes((0x81, 0x8D, 0x8F, 0x90, 0x9D))
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            if any(byte in piece for byte in undefined):
                return "latin-1"
    return "cp1252"


def named(encoding: str) -> str:
    """Return an encoding's name as people write it."""
    return {
        "utf-8": "UTF-8", "utf-8-sig": "UTF-8", "utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16",
        "cp1252": "Windows-1252", "latin-1": "Latin-1", "iso8859-1": "Latin-1",
    }.get(encoding, encoding)  # fmt: skip
