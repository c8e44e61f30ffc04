"""A cache of compiled kernels, keyed by a digest of all their sources. Numba's own misses changes in other files."""

import gc
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
# A file that contains one of these is part of kernels. Files with only constants say so in a comment.
_COMMANDS_ONLY = b"common.compiled import announce_compiling\n"  # a changed command needs no new machine code
_PART_OF_KERNELS = (b"common.compiled import", b"@intrinsic", b"# Compiled into kernels")


def kernel(function: Callable | None = None, **options: Any) -> Any:
    """Compile a function that Python calls, once per combination of argument types. It runs without the GIL."""
    if function is None:
        return partial(kernel, **options)
    # Numba reads the setting when it decorates a function. Kernels of other packages keep their own folders.
    with _decorating:
        before, numba.config.CACHE_LOCATOR_CLASSES = numba.config.CACHE_LOCATOR_CLASSES, f"{__name__}.KernelFiles"
        try:
            return numba.njit(cache=True, nogil=True, no_cfunc_wrapper=True, **options)(function)
        finally:
            numba.config.CACHE_LOCATOR_CLASSES = before


class KernelFiles:
    """Where Numba keeps a kernel: in the same folder for all copies and installations with the same sources."""

    def __init__(self, function: Callable, path: str) -> None:
        self._py_file, self._lineno = path, function.__code__.co_firstlineno  # Numba names them in an error
        file = Path(path).resolve()
        if _PACKAGE in file.parents:  # the digest in the name of the folder covers the package's own sources
            below, self._content = str(file.parent.relative_to(_PACKAGE)), ""
        else:
            below, self._content = _digest(str(file.parent).encode()), _digest(file.read_bytes())
        self._folder = kernel_folder() / below

    @classmethod
    def from_function(cls, function: Callable, path: str) -> "KernelFiles":
        return cls(function, path)

    def ensure_cache_path(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._content

    def get_disambiguator(self) -> str:
        return str(self._lineno)


def inner(function: Callable | None = None, **options: Any) -> Any:
    """Make a function callable from kernels, which compile it into their machine code. Python runs it uncompiled."""
    if function is None:
        return partial(inner, **options)
    return register_jitable(no_cfunc_wrapper=True, **options)(function)


@cache  # one listener for each process
def announce_compiling() -> None:
    """Log once, when the first kernel is compiled, that this run takes longer. Only commands call this.

    While a kernel is compiled, no garbage is collected: that would take a tenth of the time.
    """
    event.register("numba:compile", _Announcement())


class _Announcement(event.Listener):
    def __init__(self) -> None:
        self._kernels, self._seconds, self._collects = 0, 0.0, True
        self._own = local()  # a kernel compiles those that it calls, in the same thread

    def on_start(self, _: Any) -> None:
        if not self._kernels:
            folder = kernel_folder().parent
            _LOG.info(
                "compiling for this processor and Numba %s, once: half a minute or more (cache: %s)", _NUMBA, folder
            )
        self._own.depth = getattr(self._own, "depth", 0) + 1
        if self._own.depth == 1:
            self._kernels += 1
            self._collects = gc.isenabled()
            gc.disable()
            self._own.work = activity.begin(self._say)

    def on_end(self, _: Any) -> None:
        self._own.depth -= 1
        if not self._own.depth:
            self._seconds += activity.end(self._own.work)
            if self._collects:
                gc.enable()

    def _say(self, seconds: float) -> None:
        _LOG.info("compiling kernel %s: %.0f s so far", self._kernels, self._seconds + seconds)


@cache
def kernel_folder() -> Path:
    return cache_folder() / "kernels" / f"{source_digest(_PACKAGE)}-numba-{_NUMBA}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def source_digest(folder: Path) -> str:
    """Return a short digest of the Python files below a folder (names and contents) that define kernels."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        if any(mark in source.replace(_COMMANDS_ONLY, b"") for mark in _PART_OF_KERNELS):
            digest.update(f"{path.relative_to(folder)}\0".encode())
            digest.update(source)
    return digest.hexdigest()[:16]
