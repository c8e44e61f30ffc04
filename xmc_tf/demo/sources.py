"""Find the documented objects in Python source files by parsing them, and extract the prose of their docstrings."""

import ast
import importlib.util
import inspect
import os
import re
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
                f"the package {package} is not installed, but its documentation is part of the demo's data",
                fix=f"install xmc_tf with encoders: {pip_install('tf')}",
            )
        folders[package] = Path(spec.submodule_search_locations[0])
    return folders


def read_entries(folder: Path, package: str) -> Iterator[DocumentedObject]:
    """Yield a package's documented public objects, in the order of file names. Skip files that cannot be parsed."""
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
    """Yield source files and their dotted module names in a fixed order."""
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
    """Yield the classes, functions and methods of a module, including those in conditional blocks."""
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
    """Return the last part of a dotted name, such as ``Layer`` of ``keras.layers.Layer``, or "" if there is none."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


_SECTIONS = (
    "args|arguments|parameters|params|keyword args|keyword arguments|other parameters|call arguments|"
    "returns?|yields?|raises|references?|see also|examples?|usage|notes?|attributes|methods|warnings?|"
    "inputs?|outputs?|input shape|output shape|reference implementation|side effects|todo|functions|classes|"
    "routine listings"
)
_HEADING = re.compile(rf"(?:#+\s*)?(?:\*\*)?(?:{_SECTIONS})(?:\*\*)?\s*(?:\(.*\))?:{{0,2}}", re.IGNORECASE)
# "Example: x = 1" and "Returns: the sum" on one line.
_OPEN_SECTION = re.compile(r"(?:args|arguments|parameters|returns|yields|raises|examples?|usage|references?):\s")
_FIELD = re.compile(r"[:@](?:param|type|returns?|rtype|raises?|keyword|arg|class|parameter)\b")
_RULER = re.compile(r"[=+|-][=+| -]*")
_UNDERLINE = re.compile(r"([-=~^*#])\1{2,}")
_FENCE = re.compile(r"```|~~~")
_LISTED = re.compile(r"^(?:[-*+•]|\d+[.)])\s+")

# :func:`name <target>` and :class:`~a.b.C` keep the part that readers see.
_ROLE = re.compile(r":[a-z:]+:`~?([^`<]*?)(?:\s*<[^`>]*>)?`")
_FORMULA = re.compile(r":math:`[^`]*`|\$\$.+?\$\$|\$[^$\n]{1,200}\$|\\\\?\(.+?\\\\?\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ADDRESS = re.compile(r"(?:https?|ftp)://\S+|\bwww\.\S+")
_PLACEHOLDER = re.compile(r"%\(\w+\)s|\{\{?\w*\}?\}|\$\{\w+\}")
_CITATION = re.compile(r"\[\d+\]_?|\[[A-Z][A-Za-z+]*\d{2,4}\]_?")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]*[^\s*])\1(?![\w*])")
_SPACE = re.compile(r"\s+")


def prose(docstring: str, hidden: tuple[str, ...] = (), packages: tuple[str, ...] = ()) -> str:
    """Return a docstring's summary and description on one line, without code, sections, formulas and URLs.

    Text that would reveal the labels is also removed: names in ``hidden`` (ordinary words only where they are code),
    and all but the last part of dotted names that begin with one of ``packages``.
    """
    text = _SPACE.sub(" ", " ".join(_lines(inspect.cleandoc(docstring)))).strip()
    for pattern, kept in (
        (_FORMULA, " "), (_LINK, r"\1"), (_ADDRESS, " "), (_ROLE, r"`\1`"), (_PLACEHOLDER, " "), (_CITATION, " ")
    ):  # fmt: skip
        text = pattern.sub(kept, text)
    text = _without_names(text, hidden, packages)
    text = _EMPHASIS.sub(r"\2", text).replace("`", "").replace("\\", "")
    text = re.sub(r"::(?=\s|$)", ":", text)
    text = re.sub(r"\s+([.,;:)])(?!\w)", r"\1", _SPACE.sub(" ", text))
    return text.strip()


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation and digits, so that near copies match."""
    return re.findall(r"[a-z]+", text.lower())


def _lines(text: str) -> list[str]:
    """Return the lines before the first section of a docstring, without code."""
    lines = text.splitlines()
    kept: list[str] = []
    fenced = code = False
    before = ""
    for number, line in enumerate(lines):
        bare = line.strip()
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if _FENCE.match(bare):
            fenced = not fenced
        elif not fenced:
            if _FIELD.match(bare) or (kept and _begins_section(bare, following)):
                break
            # A directive and a doctest continue to the next empty line; an indented paragraph is code.
            if not before:
                code = bare.startswith("..") or (line.startswith("   ") and not _LISTED.match(bare))
            code = code or bare.startswith(">>>")
            if bare and not (code or _UNDERLINE.fullmatch(bare) or _RULER.fullmatch(bare)):
                kept.append(_LISTED.sub("", bare))
        before = bare
    return kept


def _begins_section(line: str, following: str) -> bool:
    if _UNDERLINE.fullmatch(following) and line:
        return True
    if _HEADING.fullmatch(line):
        return line.endswith((":", "*")) or line.startswith("#") or not following
    return bool(_OPEN_SECTION.match(line.lower()))


def _without_names(text: str, hidden: tuple[str, ...], packages: tuple[str, ...]) -> str:
    if packages:
        first = "|".join(map(re.escape, packages))
        text = re.sub(rf"\b(?:{first})(?:\.\w+)*\.(\w+)", r"\1", text)
    for name in hidden:
        if name not in text:
            continue
        plain = re.escape(name)
        if name.isalpha() and name in (name.lower(), name.capitalize()):
            # An ordinary word is removed where it is code, and kept where the text uses it as a word.
            text = re.sub(rf"`+{plain}(?:\([^`]*\))?`+|\b{plain}\([^()]*\)|\.{plain}\b", " ", text)
        else:
            text = re.sub(rf"`*\b{plain}\b(?:\([^()]*\))?`*", " ", text)
    return text
