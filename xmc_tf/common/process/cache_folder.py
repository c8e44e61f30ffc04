import atexit
import logging
import os
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path

_LOG = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return ``$XMC_TF_CACHE`` (default: ``~/.cache/xmc_tf``), or a private temporary folder if it is not writable."""
    home = os.environ.get("XMC_TF_CACHE")
    return _writable(Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "xmc_tf"))


@cache  # the warning is logged once
def _writable(folder: Path) -> Path:
    if _is_writable(folder):
        return folder
    # One name for each user, so that the next start finds the folder.
    other = Path(tempfile.gettempdir(), f"xmc_tf-{os.geteuid()}")
    try:
        other.mkdir(mode=0o700, exist_ok=True)
        found = other.lstat()
        # The folder holds code: nobody else may have made it, or may write to it.
        is_safe = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    except OSError:
        is_safe = False
    if not is_safe:
        made = tempfile.mkdtemp(prefix="xmc_tf-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        os.environ["XMC_TF_CACHE"] = made  # for processes that this one starts
        _LOG.warning(
            "the cache folder %s cannot be written, and %s is not private to you: kernels are compiled again in "
            "each run; set XMC_TF_CACHE to another folder", folder, other,
        )  # fmt: skip
        return Path(made)
    _LOG.warning(
        "the cache folder %s cannot be written: compiled code is kept in %s; XMC_TF_CACHE sets another folder", folder,
        other,
    )  # fmt: skip
    return other


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
    except OSError:
        return False
    os.close(handle)
    os.unlink(name)
    return True
