"""Files and folders that appear whole or not at all, whatever kills the process."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yields a path beside ``path`` to write to; it takes the name ``path`` only when the block ends well."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The temporary name keeps the suffix, since numpy's and scipy's writers look at it.
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path, made_in: Path | None = None) -> Iterator[Path]:
    """Yields a folder beside ``path`` to fill; it replaces ``path`` only when the block ends well.

    Args:
        path: the folder's name in the end.
        made_in: where it is filled, if that is on the same disk: what a kill leaves goes when that folder goes.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    near = made_in is not None and made_in.is_dir() and made_in.stat().st_dev == path.parent.stat().st_dev
    part = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=made_in if near else path.parent))
    try:
        part.chmod(0o777 & ~_umask())
        yield part
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}-old-", dir=path.parent))
            path.rename(old / path.name)
            part.rename(path)
            shutil.rmtree(old)
        else:
            part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
