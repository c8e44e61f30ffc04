"""The documented objects in Python source files, found by parsing; nothing is imported or run."""

import ast
import gc
import importlib.util
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import pip_install

# Folders without documentation of their own: tests, and generated or vendored code.
_SKIPPED_FOLDERS = {
    "__pycache__", "_api", "_tf_keras", "_vendor", "api", "benchmarks", "compat", "test", "testing", "tests",
}  # fmt: skip
# Legacy copies of a listed package, and boilerplate that repeats one text for each model.
_SKIPPED_PATHS = {"tensorflow/python/keras", "transformers/models"}
_BLOCKS = (ast.If, ast.Try, ast.With)


@dataclass(frozen=True)
class DocumentedObject:
    """One documented object.

    Args:
        module: dotted name of the module's file, "scipy.optimize._minimize".
        name: the object's own name; the last part for a module.
        owner: the class of a method, else "".
        kind: module, class, exception, function, method, property, class method, static method,
            abstract method, coroutine or context manager.
        parameters: the names in the signature; those of ``__init__`` for a class.
        bases: names of the base classes, without their modules.
        docstring: the docstring in the source.
    """

    module: str
    name: str
    owner: str
    kind: str
    parameters: tuple[str, ...]
    bases: tuple[str, ...]
    docstring: str


@dataclass
class ReadingCounts:
    """Statistics about reading sources.

    Args:
        files: number of source files read.
        unreadable: number of files that Python cannot parse or decode; they are skipped.
    """

    files: int = 0
    unreadable: int = 0


def package_folders(packages: Iterable[str]) -> dict[str, Path]:
    """Return the folders of installed packages, without importing them."""
    folders = {}
    for package in packages:
        spec = importlib.util.find_spec(package)
        places = list(spec.submodule_search_locations or []) if spec else []
        if not places:
            raise InputError(
                f"the package {package} is not installed, and its documentation is part of the demo's data",
                fix=f"install xmc_tf with encoders: {pip_install('tf')}",
            )
        folders[package] = Path(places[0])
    return folders


def read_entries(folders: dict[str, Path], tally: ReadingCounts | None = None) -> Iterator[DocumentedObject]:
    """Yield all documented public objects, in an order that depends only on names.

    Args:
        folders: package → its folder.
        tally: counts the files.
    """
    tally = tally if tally is not None else ReadingCounts()
    for package in sorted(folders):
        for path, module in _source_files(folders[package], package):
            tally.files += 1
            source = path.read_bytes()
            if b'"""' not in source and b"'''" not in source:
                continue
            try:
                with _no_collection():
                    entries = list(_entries(ast.parse(source), module))
            except (SyntaxError, ValueError, RecursionError):
                tally.unreadable += 1
                continue
            yield from entries


@contextmanager
def _no_collection() -> Iterator[None]:
    """Turn off garbage collection, which doubles the time of parsing although there are no cycles."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _source_files(folder: Path, package: str) -> Iterator[tuple[Path, str]]:
    """Yield source files and the dotted names of their modules, sorted."""
    for place, folders, files in os.walk(folder):
        inside = Path(place).relative_to(folder).parts
        folders[:] = sorted(
            f for f in folders if f not in _SKIPPED_FOLDERS and "/".join((package, *inside, f)) not in _SKIPPED_PATHS
        )
        for file in sorted(files):
            stem, suffix = os.path.splitext(file)
            if suffix == ".py" and not stem.endswith(("_test", "_pb2", "_pb2_grpc")) and stem != "conftest":
                parts = (package, *inside) if stem == "__init__" else (package, *inside, stem)
                yield Path(place, file), ".".join(parts)


def _entries(tree: ast.Module, module: str) -> Iterator[DocumentedObject]:
    if docstring := ast.get_docstring(tree, clean=False):
        yield DocumentedObject(module, module.rsplit(".", 1)[-1], "", "module", (), (), docstring)
    for node in _statements(tree.body):
        if isinstance(node, ast.ClassDef):
            yield from _class_entries(node, module)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _function_entry(node, module, "")


def _class_entries(node: ast.ClassDef, module: str) -> Iterator[DocumentedObject]:
    if node.name.startswith("_"):
        return
    methods = [n for n in _statements(node.body) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    bases = tuple(name for base in node.bases if (name := _last_name(base)))
    if docstring := ast.get_docstring(node, clean=False):
        taken = next((_parameters(m) for m in methods if m.name == "__init__"), ())
        error = node.name.endswith(("Error", "Exception", "Warning"))
        yield DocumentedObject(module, node.name, "", "exception" if error else "class", taken, bases, docstring)
    for method in methods:
        yield from _function_entry(method, module, node.name)


def _function_entry(
    node: ast.FunctionDef | ast.AsyncFunctionDef, module: str, owner: str
) -> Iterator[DocumentedObject]:
    docstring = ast.get_docstring(node, clean=False)
    if docstring and not node.name.startswith("_"):
        yield DocumentedObject(module, node.name, owner, _kind(node, owner), _parameters(node), (), docstring)


def _kind(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str) -> str:
    decorators = [_last_name(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
    if "contextmanager" in decorators or "tf_contextlib" in decorators:
        return "context manager"
    if isinstance(node, ast.AsyncFunctionDef):
        return "coroutine"
    if not owner:
        return "function"
    for decorator, kind in (
        ("property", "property"),
        ("cached_property", "property"),
        ("setter", "property"),
        ("classmethod", "class method"),
        ("staticmethod", "static method"),
        ("abstractmethod", "abstract method"),
    ):
        if decorator in decorators:
            return kind
    return "method"


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return tuple(argument.arg for argument in arguments if argument.arg not in ("self", "cls"))


def _last_name(node: ast.expr) -> str:
    """Return the last name, such as ``Layer`` of ``keras.layers.Layer``; "" if it is not a plain name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, including those under its conditions."""
    for node in body:
        if isinstance(node, _BLOCKS):
            inner = [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            for handler in getattr(node, "handlers", []):
                inner += handler.body
            yield from _statements(inner)
        else:
            yield node
