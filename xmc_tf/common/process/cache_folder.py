"""The folder of what is computed once for a machine: compiled kernels and dictionaries."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return ``$XMC_TF_CACHE``, by default ``~/.cache/xmc_tf``."""
    home = os.environ.get("XMC_TF_CACHE")
    return Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "xmc_tf")
