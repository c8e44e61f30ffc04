"""Compiled kernels, kept on disk between runs under a name that changes whenever any of the package's code does.

Numba remembers a compiled function by its own file's date and size. It does not see that a function that it calls has
changed in another file, and after an update the old machine code would go on running, or fail in odd ways
(``tests/common/test_compiled.py``). So the kernels are kept in a folder named after a digest of the sources:
``$XMC_TF_CACHE/kernels/<digest>``, by default below ``~/.cache/xmc_tf``.

A kernel that is kept is loaded without what only compiling needs: Numba's own library of functions, whose import takes
longer than all else that a command loads of Numba. Who compiles after all gets it then.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

_LOG = logging.getLogger(__name__)
_PACKAGE = Path(__file__).parents[1]


def njit(**options: Any) -> Callable[[Callable], Any]:
    """``numba.njit(**options)``, its cache in a folder of this very code.

    Example:
        >>> @njit(cache=True, nogil=True)
        ... def total(values):
        ...     return values.sum()
    """

    def decorate(function: Callable) -> Any:
        # Where a function is kept is decided when it is decorated; other packages keep theirs where they did.
        others = config.CACHE_DIR
        config.CACHE_DIR = str(kernel_folder())
        try:
            kernel = numba.njit(**options)(function)
            if options.get("cache"):
                kernel._cache = _Kept(function)
            return kernel
        finally:
            config.CACHE_DIR = others

    return decorate


class _Kept(FunctionCache):
    """Numba's cache of a function, which here prepares for running alone, not for compiling, before it loads."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None where it was never compiled."""
        rtsys.initialize(target_context)  # memory for arrays that kernels make
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def announce_compiling() -> None:
    """Says why the first run takes longer: nothing of this version has been compiled on this machine."""
    folder, was_there = _folder_as_found()
    if not was_there:
        _LOG.info("compiling for this processor, once: half a minute more; kept in %s", folder.parent)


def kernel_folder() -> Path:
    """Where this version's compiled kernels are kept."""
    return _folder_as_found()[0]


@cache
def _folder_as_found() -> tuple[Path, bool]:
    """The folder, and whether it was there before Numba made it for the first function that is kept in it."""
    home = os.environ.get("XMC_TF_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "xmc_tf")
    folder = Path(home, "kernels", source_digest(_PACKAGE))
    return folder, folder.exists()


def source_digest(folder: Path) -> str:
    """A short digest of the Python files below a folder that hold compiled code, names included."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        if b"njit" in source or b"@intrinsic" in source:
            digest.update(f"{path.relative_to(folder)}\0".encode())
            digest.update(source)
    return digest.hexdigest()[:16]
