"""The folder of what is computed once for a machine: compiled kernels and dictionaries."""

import logging
import os
import stat
import tempfile
from functools import cache
from pathlib import Path

_LOG = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return ``$XMC_TF_CACHE``, by default ``~/.cache/xmc_tf``; if it cannot be written, a private temporary folder."""
    home = os.environ.get("XMC_TF_CACHE")
    return _writable(Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "xmc_tf"))


@cache  # the warning is logged once
def _writable(folder: Path) -> Path:
    if _is_writable(folder):
        return folder
    # Under one name for each user, so that the next start finds it.
    other = Path(tempfile.gettempdir(), f"xmc_tf-{os.geteuid()}")
    try:
        other.mkdir(mode=0o700, exist_ok=True)
        found = other.lstat()
    except OSError:
        return folder
    # The folder holds code: nobody else may have made it, or may write to it.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        return folder
    _LOG.warning(
        "the cache folder %s cannot be written: compiled code is kept in %s; XMC_TF_CACHE names another folder", folder,
        other,
    )  # fmt: skip
    return other


def _is_writable(folder: Path) -> bool:
    """Return whether files can be made in a folder, which is made if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
    except OSError:
        return False
    os.close(handle)
    os.unlink(name)
    return True
