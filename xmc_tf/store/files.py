"""Single files: atomic writing, the removal of what killed runs left, and hashes of content."""

import errno
import glob
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import lock_file

_LOG = logging.getLogger(__name__)
_PIECE, _STEP = 1 << 20, 1 << 14


@contextmanager
def atomic_file(path: str | Path, *, new: bool = False) -> Iterator[Path]:
    """Yield a temporary path, renamed to ``path`` if the block succeeds. With ``new``, fail if ``path`` exists."""
    path = Path(path)
    if path.exists() and not path.is_file():  # replacing would delete a device or a pipe
        problem = f"{path} cannot be replaced by a file"
        received = "a folder" if path.is_dir() else "a device or a pipe"
        raise InputError(problem, expected="the name of a file", received=received, fix="write to a file first")
    path.parent.mkdir(parents=True, exist_ok=True)
    # numpy's and scipy's writers need the suffix.
    handle, name = tempfile.mkstemp(prefix=hidden_prefix(path.stem), suffix=path.suffix, dir=path.parent)
    part = Path(name)
    try:
        lock_file(handle)  # while it is written: see remove_leftovers
        yield part
        part.chmod(0o666 & ~umask())
        if new:
            try:
                os.link(part, path)  # fails if there is a file
            except OSError:  # also of a disk without hard links
                if os.path.lexists(path):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
                part.replace(path)
        else:
            part.replace(path)
    except OSError as error:
        raise named_error(error, path) from None
    finally:
        os.close(handle)
        part.unlink(missing_ok=True)


@contextmanager
def atomic_files(*paths: Path) -> Iterator[list[Path]]:
    """Yield a temporary path for each file. They are renamed if the block succeeds, the first one last."""
    with ExitStack() as placed:
        parts = [placed.enter_context(atomic_file(path)) for path in paths]
        try:
            yield parts
        except OSError as error:  # the system does not say which file it was
            raise named_error(error, paths[0].parent) from None


def hidden_prefix(name: str) -> str:
    """Return the prefix of xmc_tf's temporary names for ``name``. A temporary name is this prefix and 8 characters."""
    return f".{name}.xmc_tf-"


def named_error(error: OSError, path: str | Path) -> OSError:
    """Return the error with the file's name, which the system omits if a disk is full or a size limit is exceeded."""
    if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO):
        return error
    return OSError(error.errno, error.strerror, str(path))


def remove_leftovers(path: str | Path) -> None:
    """Remove the temporary files that killed runs left next to ``path``."""
    path = Path(path)
    if not path.parent.is_dir():
        return
    prefix, suffix = glob.escape(hidden_prefix(path.stem)), glob.escape(path.suffix)
    for leftover in sorted(path.parent.glob(f"{prefix}????????{suffix}")):
        try:
            handle = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue  # already removed, or not ours
        try:
            if lock_file(handle):
                leftover.unlink(missing_ok=True)
                _LOG.info("removed %s, left by an interrupted run", leftover)
        finally:
            os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def umask() -> int:
    """Return the process's umask. It is set and restored, because it cannot be read otherwise."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


class _Writable(Protocol):
    def write(self, data: memoryview, /) -> int | None: ...


def write_in_steps(file: _Writable, data: memoryview, start: int = 0) -> None:
    """Write a flat array's bytes in steps that end at page boundaries. ``start`` is the current offset in the file.

    One large write is slower (256 MB: 1.8 s, not 0.44 s): it needs large blocks of memory, and zeroes partial pages.
    """
    data = data.cast("B")
    at = 0
    while at < len(data):
        to_step = _STEP - (start + at) % _STEP
        at += file.write(data[at : at + to_step]) or 0


def content_hash(path: Path, read: Callable[[int], object] = lambda _: None) -> str:
    """Return a hash of a whole file. ``read`` is called with the number of bytes of each piece that was read."""
    digest, piece = hashlib.blake2b(digest_size=16), memoryview(bytearray(_PIECE))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(piece):
            digest.update(piece[:count])
            read(count)
    return digest.hexdigest()


def log_folder(folder: str | Path) -> str:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{folder} cannot hold TensorBoard's files: {error.strerror}"
        raise InputError(problem, expected="a writable folder, or a new one", fix="use another logdir") from None
    return str(folder)
