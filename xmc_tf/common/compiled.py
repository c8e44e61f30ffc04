"""Compiled kernels, cached on disk between runs under a name that changes whenever any of the package's kernels does.

Numba's cache of a compiled function notices changes in the function's own file. It does not notice that a function
that it calls has changed in another file: after an update the old machine code would still run, or fail in odd ways
(``tests/common/test_compiled.py``). So the kernels are cached in a folder named after a digest of the sources:
``$XMC_TF_CACHE/kernels/<digest>``, by default below ``~/.cache/xmc_tf``. In it, Numba makes folders for
each installation.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numba
from numba.core import event

_LOG = logging.getLogger(__name__)
_PACKAGE = Path(__file__).parents[1]
_NUMBA = numba.__version__
_decorating = Lock()


def njit(**options: Any) -> Callable[[Callable], Any]:
    """Return ``numba.njit(**options)``, whose cache is in a folder for exactly this code.

    Example:
        >>> @njit(cache=True, nogil=True)
        ... def total(values):
        ...     return values.sum()
    """

    def decorate(function: Callable) -> Any:
        # Numba reads the setting when it decorates a function. Kernels of other packages keep their own folder.
        with _decorating:
            before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(kernel_folder())
            try:
                return numba.njit(**options)(function)
            finally:
                numba.config.CACHE_DIR = before

    return decorate


@cache  # one listener for each process
def announce_compiling() -> None:
    """Log once why this run takes longer, when the first kernel is not cached and has to be compiled.

    Command lines call it; a program that uses the package logs nothing.
    """
    event.register("numba:compile", _Announcement())


class _Announcement(event.Listener):
    """A listener that logs the first compilation."""

    def __init__(self) -> None:
        self._done = False

    def on_start(self, _: Any) -> None:
        """Log that a kernel is being compiled, unless that has been logged."""
        if not self._done:
            self._done = True
            folder = kernel_folder().parent
            _LOG.info(
                "compiling for this processor and Numba %s: up to half a minute, once (cache: %s)", _NUMBA, folder
            )

    def on_end(self, _: Any) -> None:
        """Do nothing: only the beginning is logged."""


@cache
def kernel_folder() -> Path:
    """Where this version's compiled kernels are kept."""
    home = os.environ.get("XMC_TF_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "xmc_tf")
    return Path(home, "kernels", f"{source_digest(_PACKAGE)}-numba-{_NUMBA}")


def source_digest(folder: Path) -> str:
    """A short digest of the Python files below a folder that hold compiled code, names included."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        if b"njit" in source or b"@intrinsic" in source:
            digest.update(f"{path.relative_to(folder)}\0".encode())
            digest.update(source)
    return digest.hexdigest()[:16]
