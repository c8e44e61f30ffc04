"""What the files below a folder contain, and damage to a file."""

import ctypes
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2  # what lets root write to and read from any folder
_CAPABILITY_VERSION = 0x20080522


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


def obey_permissions() -> Callable[[], None]:
    """Give up the right to ignore the permissions of files and folders, which root has; return what takes it back."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, each in two halves
    if libc.capget(head, sets) != 0:
        return lambda: None
    before = sets[0]
    sets[0] &= ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    libc.capset(head, sets)

    def take_back() -> None:
        sets[0] = before
        libc.capset(head, sets)

    return take_back


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let files grow to some bytes only within the ``with`` block, as a disk does that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let nothing be written in a folder or to its files within the ``with`` block."""
    places = [folder, *folder.rglob("*")]
    for path in places:
        path.chmod(0o555 if path.is_dir() else 0o444)
    take_back = obey_permissions()
    try:
        yield
    finally:
        take_back()
        for path in places:
            path.chmod(0o755 if path.is_dir() else 0o644)
