"""Hashes of the content of files. Sizes and times of change do not show whether a file has changed."""

import hashlib
from collections.abc import Callable
from pathlib import Path

_PIECE = 1 << 20


def content_hash(path: Path, read: Callable[[int], object] = lambda _: None) -> str:
    """Return a hash of a whole file. ``read`` is called with the number of bytes of each piece that was read."""
    digest, piece = hashlib.blake2b(digest_size=16), memoryview(bytearray(_PIECE))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(piece):
            digest.update(piece[:count])
            read(count)
    return digest.hexdigest()
