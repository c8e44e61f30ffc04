"""Which test files run in an environment with the core only: those whose imports it has.

``python -m pytest --core`` collects them. There is no list: the imports of each file are tried, also those of the
modules that they load. A file that needs another package is left out, and the package is named at the end. What a
test imports when it runs does not count: it asks for the package with ``pytest.importorskip``.
"""

import ast
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from xmc_tf.common.errors import InputError

# That a Python lacks these is a fault, not a choice.
_NEVER_MISSING = {"xmc_tf", "tests", "tools", "numpy", "scipy", "numba", "llvmlite"}


class CoreFiles:
    """Collects the test files whose imports are installed."""

    def __init__(self) -> None:
        self._left_out: dict[str, str] = {}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out a file, or a folder for its settings, that needs a package which is not installed."""
        path = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
        if not path.is_file() or not path.name.startswith(("test_", "conftest.")):
            return None
        package = missing_package(path)
        if package is None:
            return None
        self._left_out[str(collection_path)] = package
        return True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send what was left out from a process of pytest-xdist, which collects, to the one that prints."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left_out"] = self._left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Receive what a process of pytest-xdist has left out."""
        self._left_out |= getattr(node, "workeroutput", {}).get("left_out", {})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print how many files and folders need each package."""
        needed = Counter(self._left_out.values()).most_common()
        terminalreporter.write_line("left out: " + ", ".join(f"{count} for {name}" for name, count in needed))


def missing_package(path: Path) -> str | None:
    """Return a package that a test file imports and that is not installed; None if there is none."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        try:
            _import(node)
        except (ModuleNotFoundError, InputError) as error:
            missing = error.__context__ if isinstance(error, InputError) else error  # xmc_tf.sklearn says it at once
            package = str(getattr(missing, "name", "xmc_tf")).split(".")[0]
            if package in _NEVER_MISSING:
                raise
            return package
    return None


def _import(node: ast.stmt) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            import_module(alias.name)
    elif isinstance(node, ast.ImportFrom):
        module = import_module(str(node.module))
        for alias in node.names:
            if not hasattr(module, alias.name):
                import_module(f"{node.module}.{alias.name}")
