"""Checksums of files and folders that take seconds, whatever their size: of the sizes, and of samples."""

import hashlib
from pathlib import Path

_PIECE, _PIECES = 64 << 10, 16
_WHOLE = _PIECE * _PIECES  # smaller files are read to the end
MOST_FILES = 1000


def quick_checksum(path: str) -> str | None:
    """Return a checksum of a file, or of the files of a folder; None if it does not exist.

    Of a large file, 16 pieces are read. The training itself compares all data; this finds copies that are old.
    """
    root = Path(path)
    total = hashlib.blake2b(digest_size=8)
    try:
        if root.is_file():
            _add(total, root)
        elif root.is_dir():
            for file in sorted(file for file in root.rglob("*") if file.is_file())[:MOST_FILES]:
                total.update(str(file.relative_to(root)).encode(errors="surrogateescape") + b"\0")
                _add(total, file)
        else:
            return None
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return total.hexdigest()


def _add(total: "hashlib.blake2b", file: Path) -> None:
    size = file.stat().st_size
    total.update(size.to_bytes(8, "little"))
    with file.open("rb") as stream:
        if size <= _WHOLE:
            total.update(stream.read(_WHOLE))
            return
        for number in range(_PIECES):
            stream.seek(number * (size - _PIECE) // (_PIECES - 1))
            total.update(stream.read(_PIECE))
