"""Compiled kernels, kept on disk between runs under a name that changes whenever any of the package's code does.

Numba remembers a compiled function by its own file's date and size. It does not see that a function that it calls has
changed in another file, and after an update the old machine code would go on running, or fail in odd ways
(``tests/common/test_compiled.py``). So the kernels are kept in a folder named after a digest of the sources:
``$XMC_TF_CACHE/kernels/<digest>``, by default below ``~/.cache/xmc_tf``. It does not matter where the package is
installed: all environments with the same sources and the same Numba share one folder.

A kernel that is kept is loaded without what only compiling needs: Numba's own library of functions, whose import takes
longer than all else that a command loads of Numba, and what other kernels would need to include this one, which takes
longer to read than its machine code. Who compiles after all gets both then.
"""

import hashlib
import logging
import os
import sys
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from threading import Event
from typing import Any

import numba
from llvmlite import binding as llvm
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime import rtsys

_LOG = logging.getLogger(__name__)
_PACKAGE = Path(__file__).parents[1]
_NUMBA = numba.__version__
_announced = Event()
_announced.set()  # only command lines announce


def njit(**options: Any) -> Callable[[Callable], Any]:
    """``numba.njit(**options)``, its cache in a folder of this very code.

    Example:
        >>> @njit(cache=True, nogil=True)
        ... def total(values):
        ...     return values.sum()
    """

    def decorate(function: Callable) -> Any:
        kernel = numba.njit(**{name: value for name, value in options.items() if name != "cache"})(function)
        if options.get("cache"):
            kernel._cache = _Kept(function)
        return kernel

    return decorate


class _Locator:
    """Tells Numba's cache where a function is kept and what it was compiled from.

    Numba's own locators tell files apart by path and date, so a second environment compiles the same code again.
    """

    def __init__(self, function: Callable, path: str) -> None:
        self._py_file = path  # Numba names it in warnings
        self._function = function

    @classmethod
    def from_function(cls, function: Callable, path: str) -> "_Locator | None":
        """Return the locator of a function; None, for Numba to try its own, if the folder cannot be written."""
        locator = cls(function, path)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator if os.access(locator.get_cache_path(), os.W_OK) else None

    def ensure_cache_path(self) -> None:
        """Make the folder of the function."""
        os.makedirs(self.get_cache_path(), exist_ok=True)

    def get_cache_path(self) -> str:
        """Return the folder of the function's module."""
        return str(kernel_folder() / self._function.__module__)

    def get_source_stamp(self) -> str:
        """Return the checksum of the function's file."""
        return _checksum(self._py_file)

    def get_disambiguator(self) -> str:
        """Return what distinguishes functions of the same name in one module."""
        return str(self._function.__code__.co_firstlineno)


@cache
def _checksum(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class _Code(CompileResultCacheImpl):
    """What is kept of a function: its machine code, what a kernel that calls it includes, and the names of both.

    Beside it Numba keeps the surroundings of all functions that were included, some of them its own, whose modules it
    would import; but machine code takes no more from there than constants.
    """

    _locator_classes = [_Locator, *CompileResultCacheImpl._locator_classes]  # noqa: RUF012  Numba's name and form

    def reduce(self, compiled: Any) -> tuple:
        module = compiled.library._get_module_for_linking()
        named = [*module.functions, *module.global_variables]
        *kept, surroundings = super().reduce(compiled)
        plain = [(one.env_name, one.globals["__name__"], list(one.consts)) for one in surroundings]
        return {one.name for one in named if not one.is_declaration}, kept, plain

    def rebuild(self, target: Any, payload: tuple) -> Any:
        names, ((name, kind, (machine_code, to_include)), *rest), plain = payload
        nothing = llvm.parse_assembly("").as_bitcode()
        target.codegen()._engine._defined_symbols |= names
        surroundings = [_surroundings(*one) for one in plain]
        compiled = super().rebuild(target, ((name, kind, (machine_code, nothing)), *rest, surroundings))
        compiled.library._get_module_for_linking = cache(lambda: llvm.parse_bitcode(to_include))
        return compiled


def _surroundings(name: str, module: str, constants: list[Any]) -> Environment:
    if (known := lookup_environment(name)) is not None:
        return known
    found = Environment(vars(sys.modules[module]) if module in sys.modules else {"__name__": module})
    found.env_name, found.consts[:] = name, constants
    Environment._memo[name] = found
    return found


class _Files(FunctionCache):
    _impl_class = _Code


class _Kept:
    """What Numba asks for a function's compiled code: its own cache, opened when the function is first called.

    Numba would open it when the function is decorated, and prepare for compiling before it looks whether it has to.
    """

    def __init__(self, function: Callable) -> None:
        self._function = function

    @cached_property
    def _files(self) -> FunctionCache:
        return _Files(self._function)

    @property
    def cache_path(self) -> str:
        """The folder that the function is kept in."""
        return self._files.cache_path

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled function; None where it was never compiled for these types."""
        rtsys.initialize(target)  # memory for the arrays that kernels make
        found = self._files._load_overload(signature, target)
        if found is None:
            _announce()
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keeps what has been compiled."""
        self._files.save_overload(signature, compiled)

    def flush(self) -> None:
        """Forgets what is kept of the function."""
        self._files.flush()


def announce_compiling() -> None:
    """Log once why this run takes longer, when the first kernel is not cached and has to be compiled.

    Command lines call it; a program that uses the package logs nothing.
    """
    _announced.clear()


def _announce() -> None:
    if not _announced.is_set():
        _announced.set()
        folder = kernel_folder().parent
        _LOG.info("compiling for this processor and Numba %s: up to half a minute, once (cache: %s)", _NUMBA, folder)


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
