"""Temporary folders that the next run removes if this one is killed.

A folder is in use as long as a process holds its lock, which ends with the process in any case.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import weakref
from pathlib import Path

_LOG = logging.getLogger(__name__)
_PREFIX = "xmc-tf-temporary-"  # not a name that users give their folders, which would be removed


class TemporaryFolder:
    """A new temporary folder, removed with this object, or by the next run if this one is killed.

    ``tempfile.TemporaryDirectory`` warns if it is not closed, but a model that needs its folder is just dropped.

    Attributes:
        name: path of the folder.
    """

    def __init__(self) -> None:
        self.name, handle = _locked_folder()
        self._remove = weakref.finalize(self, _remove, self.name, handle)

    def cleanup(self) -> None:
        """Remove the folder now."""
        self._remove()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def remove_leftovers() -> None:
    """Remove the temporary folders that killed runs of this user have left on this host, and log it."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}????????")):
        with contextlib.suppress(OSError):  # in use, removed by another process, or on a disk without locks
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(handle).st_uid == os.geteuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
                    _LOG.info("removed what a killed run has left: %s", folder)
            finally:
                os.close(handle)


def _locked_folder() -> tuple[str, int]:
    """Return a new folder, and the open descriptor that holds its lock."""
    while True:
        name = tempfile.mkdtemp(prefix=_PREFIX)
        try:
            handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # another run took it for a leftover before it was opened
        with contextlib.suppress(OSError):  # a disk without locks, whose folders no run removes
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(name):
            return name, handle
        os.close(handle)  # another run took it for a leftover before it was locked


def _remove(name: str, handle: int) -> None:
    shutil.rmtree(name, ignore_errors=True)
    os.close(handle)
