"""Compiled kernels, cached on disk between runs under a name that changes whenever any of the package's kernels does.

Numba's cache of a compiled function notices changes in the function's own file. It does not notice that a function
that it calls has changed in another file: after an update the old machine code would still run, or fail in odd ways
(``tests/common/test_compiled.py``). So the kernels are cached in a folder named after a digest of the sources:
``$XMC_TF_CACHE/kernels/<digest>``, by default below ``~/.cache/xmc_tf``. In it, Numba makes folders for
each installation.
"""

import hashlib
import logging
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from threading import Lock, local
from typing import Any

import numba
from numba.core import event
from numba.extending import register_jitable

from xmc_tf.common import activity
from xmc_tf.common.process.cache_folder import cache_folder

_LOG = logging.getLogger(__name__)
_PACKAGE = Path(__file__).parents[1]
_NUMBA = numba.__version__
_decorating = Lock()
# What a file contains that is part of kernels. Files of constants alone say it in a comment.
_COMMANDS_ONLY = b"common.compiled import announce_compiling\n"  # a changed command needs no new machine code
_PART_OF_KERNELS = (b"common.compiled import", b"@intrinsic", b"# Compiled into kernels")


def kernel(function: Callable | None = None, **options: Any) -> Any:
    """Compile a function that Python calls, and cache its machine code in a folder for exactly this code.

    It runs without the interpreter's lock. It is compiled once for each combination of argument types, including all
    :func:`inner` functions that it calls, which takes 0.1 to 10 seconds: use few combinations.

    Example:
        >>> @kernel
        ... def total(values):
        ...     return doubled(values.sum())

    Args:
        function: the function.
        **options: further options of ``numba.njit``, such as ``fastmath``.
    """
    if function is None:
        return partial(kernel, **options)
    # Numba reads the setting when it decorates a function. Kernels of other packages keep their own folder.
    with _decorating:
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(kernel_folder())
        try:
            return numba.njit(cache=True, nogil=True, **options)(function)
        finally:
            numba.config.CACHE_DIR = before


def inner(function: Callable | None = None, **options: Any) -> Any:
    """Let kernels call a function; called from Python, it runs as Python.

    It is part of the machine code of each kernel that calls it. A function that both call is an ``inner`` one, and
    ``kernel(function)`` is what Python calls. As no ``kernel``, it has no files in the cache, and no code that converts
    arguments from Python, which can take longer to compile than the function itself.

    Example:
        >>> @inner
        ... def doubled(value):
        ...     return 2 * value

    Args:
        function: the function.
        **options: further options of ``numba.njit``, such as ``fastmath``.
    """
    if function is None:
        return partial(inner, **options)
    return register_jitable(no_cfunc_wrapper=True, **options)(function)


@cache  # one listener for each process
def announce_compiling() -> None:
    """Log once why this run takes longer, when the first kernel is not cached and has to be compiled.

    Command lines call it; a program that uses the package logs nothing.
    """
    event.register("numba:compile", _Announcement())


class _Announcement(event.Listener):
    """A listener that logs the first compilation, and says while it compiles that it does."""

    def __init__(self) -> None:
        self._kernels, self._seconds = 0, 0.0
        self._own = local()  # a kernel compiles those that it calls, in the same thread

    def on_start(self, _: Any) -> None:
        """Log that a kernel is being compiled, unless that has been logged."""
        if not self._kernels:
            folder = kernel_folder().parent
            _LOG.info(
                "compiling for this processor and Numba %s, once: half a minute or more (cache: %s)", _NUMBA, folder
            )
        self._own.depth = getattr(self._own, "depth", 0) + 1
        if self._own.depth == 1:
            self._kernels += 1
            self._own.work = activity.begin(self._say)

    def on_end(self, _: Any) -> None:
        """Note that a kernel is compiled."""
        self._own.depth -= 1
        if not self._own.depth:
            self._seconds += activity.end(self._own.work)

    def _say(self, seconds: float) -> None:
        _LOG.info("compiling kernel %s: %.0f s so far", self._kernels, self._seconds + seconds)


@cache
def kernel_folder() -> Path:
    """Where this version's compiled kernels are kept."""
    return cache_folder() / "kernels" / f"{source_digest(_PACKAGE)}-numba-{_NUMBA}"


def source_digest(folder: Path) -> str:
    """Return a short digest of the Python files below a folder that are part of kernels, names included."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        if any(mark in source.replace(_COMMANDS_ONLY, b"") for mark in _PART_OF_KERNELS):
            digest.update(f"{path.relative_to(folder)}\0".encode())
            digest.update(source)
    return digest.hexdigest()[:16]
