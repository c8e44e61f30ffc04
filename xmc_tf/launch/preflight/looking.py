"""The findings of a probe on its host: versions, checksums, the shared folder, disk space, GPUs."""

import os
import platform
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from xmc_tf import __version__
from xmc_tf.launch.hosts.gpus import visible_gpus
from xmc_tf.launch.preflight.checksums import quick_checksum

PACKAGES = ("tensorflow", "horovod", "transformers")
_PATIENCE_S = 3.0  # network file systems show new files with a delay


def look(paths: Sequence[str], shared: str, mark: str, token: str) -> dict[str, Any]:
    """Return what is found on this host.

    Args:
        paths: the files and folders of the program, to compare.
        shared: the folder that all hosts shall share.
        mark: the name of the launcher's file in it, or "" to skip this check.
        token: the content of that file.
    """
    return {
        "host": socket.gethostname(),
        "versions": versions(),
        "checksums": {path: quick_checksum(path) for path in paths},
        "shared": not mark or _appears(Path(shared, mark), token),
        "disk": {folder: free_bytes(folder) for folder in (shared, tempfile.gettempdir())},
        "gpus": [[gpu.name, gpu.memory, gpu.utilisation] for gpu in visible_gpus(os.environ)],
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package, and of those that it trains with."""
    found = {"python": platform.python_version(), "xmc_tf": __version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def free_bytes(folder: str) -> int | None:
    """Return the free bytes of a folder's disk, or None if the folder does not exist."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _appears(mark: Path, token: str) -> bool:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            if mark.read_text() == token:
                return True
        except OSError:
            pass
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
