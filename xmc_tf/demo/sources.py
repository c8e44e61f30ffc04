"""The documented objects in Python source files, found by parsing; nothing is imported or run."""

import ast
import importlib.util
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import pip_install

# Folders without documentation of their own: tests, and generated or vendored code.
_SKIPPED_FOLDERS = {
    "__pycache__", "_api", "_tf_keras", "_vendor", "api", "benchmarks", "compat", "test", "testing", "tests",
}  # fmt: skip
# Legacy copies of a listed package, and boilerplate that repeats one text for each model.
_SKIPPED_PATHS = {"tensorflow/python/keras", "transformers/models"}
_KINDS = {
    "contextmanager": "context manager", "tf_contextlib": "context manager", "property": "property",
    "cached_property": "property", "setter": "property", "classmethod": "class method",
    "staticmethod": "static method", "abstractmethod": "abstract method",
}  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class DocumentedObject(NamedTuple):
    module: str  # dotted name, such as "scipy.optimize._minimize"
    name: str
    owner: str  # the class of a method
    kind: str  # module, class, exception, function, coroutine, or a value of _KINDS
    parameters: tuple[str, ...]  # those of __init__ for a class
    bases: tuple[str, ...]  # without their modules
    docstring: str


def package_folders(packages: Iterable[str]) -> dict[str, Path]:
    """Return the folders of installed packages, without importing them."""
    folders = {}
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise InputError(
                f"the package {package}, whose documentation is part of the demo's data, is not installed",
                fix=f"install xmc_tf with encoders: {pip_install('tf')}",
            )
        folders[package] = Path(spec.submodule_search_locations[0])
    return folders


def read_entries(folder: Path, package: str) -> Iterator[DocumentedObject]:
    """Yield the documented public objects of a package in the order of names, without files that cannot be parsed."""
    for path, module in _source_files(folder, package):
        source = path.read_bytes()
        if b'"""' in source or b"'''" in source:
            try:
                tree = ast.parse(source)
            except (SyntaxError, ValueError, RecursionError):
                continue
            if docstring := ast.get_docstring(tree, clean=False):
                yield DocumentedObject(module, module.rsplit(".", 1)[-1], "", "module", (), (), docstring)
            yield from _objects(tree, module)


def _source_files(folder: Path, package: str) -> Iterator[tuple[Path, str]]:
    """Yield source files and the dotted names of their modules, sorted."""
    for place, folders, files in os.walk(folder):
        inside = (package, *Path(place).relative_to(folder).parts)
        folders[:] = sorted(
            f for f in folders if f not in _SKIPPED_FOLDERS and "/".join((*inside, f)) not in _SKIPPED_PATHS
        )
        for file in sorted(files):
            stem, suffix = os.path.splitext(file)
            if suffix == ".py" and not stem.endswith(("_test", "_pb2", "_pb2_grpc")) and stem != "conftest":
                yield Path(place, file), ".".join(inside if stem == "__init__" else (*inside, stem))


def _objects(scope: ast.AST, module: str, owner: str = "") -> Iterator[DocumentedObject]:
    """Yield the classes and functions of a module, or the methods of a class, also those below conditions."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, _Function | ast.ClassDef):
            docstring = None if node.name.startswith("_") else ast.get_docstring(node, clean=False)
            if isinstance(node, _Function):
                if docstring:
                    kind = _kind(node, owner)
                    yield DocumentedObject(module, node.name, owner, kind, _parameters(node), (), docstring)
            elif not owner and not node.name.startswith("_"):
                if docstring:
                    yield _class(node, module, docstring)
                yield from _objects(node, module, node.name)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _objects(node, module, owner)


def _class(node: ast.ClassDef, module: str, docstring: str) -> DocumentedObject:
    taken = next((_parameters(one) for one in node.body if isinstance(one, _Function) and one.name == "__init__"), ())
    kind = "exception" if node.name.endswith(("Error", "Exception", "Warning")) else "class"
    bases = tuple(name for base in node.bases if (name := _last_name(base)))
    return DocumentedObject(module, node.name, "", kind, taken, bases, docstring)


def _kind(node: _Function, owner: str) -> str:
    decorators = [_last_name(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
    found = {_KINDS[one] for one in decorators if one in _KINDS}
    if "context manager" in found:
        return "context manager"
    if isinstance(node, ast.AsyncFunctionDef):
        return "coroutine"
    return next((kind for kind in _KINDS.values() if kind in found), "method") if owner else "function"


def _parameters(node: _Function) -> tuple[str, ...]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return tuple(argument.arg for argument in arguments if argument.arg not in ("self", "cls"))


def _last_name(node: ast.expr) -> str:
    """Return the last name, such as ``Layer`` of ``keras.layers.Layer``, or ""."""
    return str(getattr(node, "attr", getattr(node, "id", "")))
