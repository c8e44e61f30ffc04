"""What the files below a folder contain, and damage to a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of each file below a folder, by its path there."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: (folder / name).read_bytes() for name in names}


def flip(path: Path, position: float = 0.5, bits: int = 1) -> None:
    """Change bits of one byte of a file.

    Args:
        path: the file.
        position: number of the byte; for a float, the share of the file before it.
        bits: of the byte.
    """
    content = bytearray(path.read_bytes())
    at = int(position * (len(content) - 1)) if isinstance(position, float) else position
    content[at] ^= bits
    path.write_bytes(content)


@contextmanager
def flipped(path: Path, position: float = 0.5, bits: int = 1) -> Iterator[None]:
    """Change bits of one byte of a file within the ``with`` block."""
    before = path.read_bytes()
    flip(path, position, bits)
    try:
        yield
    finally:
        path.write_bytes(before)
