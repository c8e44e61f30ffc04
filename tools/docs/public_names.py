"""The public names, and what is missing in their documentation."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from xmc_tf.common.process.quiet import muted_stderr
from xmc_tf.params.base import Params

ROOT = Path(__file__).resolve().parents[2]
# Modules whose `__all__` is public.
MODULES = ("xmc_tf",)
_DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
_ARGS = re.compile(r"^(?:Args|Attributes):\n((?:[ ]+.*\n?|\n)+)", re.MULTILINE)


def public_names() -> dict[str, Any]:
    """Return the public objects by their full names."""
    with muted_stderr():  # the first import of TensorFlow writes about GPUs that are not there
        return {
            f"{module}.{name}": getattr(import_module(module), name)
            for module in MODULES
            for name in import_module(module).__all__
        }


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that xmc_tf defines, by name."""
    seen = set()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] != "xmc_tf":
            continue
        for name, value in vars(base).items():
            function = getattr(value, "__func__", None) or getattr(value, "fget", None) or getattr(value, "func", value)
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)  # a field may take the place of a property of a base class
            if inspect.isfunction(function):
                yield name, value


def documented() -> dict[str, Callable[..., Any] | type]:
    """Return everything that must have a docstring: public names and the members of public classes."""
    found = {}
    for name, value in public_names().items():
        found[name] = value
        if inspect.isclass(value):
            for member, _ in members(value):
                found[f"{name}.{member}"] = inspect.getattr_static(value, member)
    return found


def docstring(value: Any) -> str:
    """Return the cleaned docstring of an object, and nothing where it has none of its own."""
    own = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if inspect.isclass(own) and dataclasses.is_dataclass(own) and (own.__doc__ or "").startswith(f"{own.__name__}("):
        return ""  # written by dataclass
    return inspect.cleandoc(own.__doc__ or "")


def problems(pages: Iterable[str]) -> list[str]:
    """Return what is missing: pages, docstrings and descriptions of arguments.

    Args:
        pages: the text of each reference page.
    """
    directives = {name for text in pages for name in _DIRECTIVE.findall(text)}
    found = []
    for name, value in public_names().items():
        own = f"{value.__module__}.{value.__qualname__}"
        if name not in directives and own not in directives:
            found.append(f"{name}: no reference page has it")
    for name, value in documented().items():
        texts = [docstring(value), *map(docstring, overridden(name, value))]
        if not any(texts):
            found.append(f"{name}: no docstring")
        missing = set.intersection(*({*undescribed(value, text)} for text in texts))
        found += [f"{name}: the argument {one} is not described" for one in undescribed(value, "") if one in missing]
    return found


def overridden(name: str, value: Any) -> list[Any]:
    """Return the methods of base classes that a member overrides: what they describe needs no second description."""
    owner, _, member = name.rpartition(".")
    bases = getattr(public_names().get(owner), "__mro__", ())
    return [vars(base)[member] for base in bases if vars(base).get(member, value) is not value]


def undescribed(value: Any, text: str) -> list[str]:
    """Return the arguments that a docstring does not describe."""
    if isinstance(value, property) or hasattr(value, "func"):
        return []
    # Fields of parameter classes have a help text. A class without a constructor of its own is not for users to call.
    if inspect.isclass(value) and (
        issubclass(value, Params) or "__init__" not in vars(value) or getattr(value, "_is_protocol", False)
    ):
        return []
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    try:
        names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    except ValueError:
        return []
    section = _ARGS.search(text)
    described = set(re.findall(r"^\s+\*{0,2}(\w+)(?: \([^)]*\))?:", section[1], re.MULTILINE)) if section else set()
    return [name for name in names if name not in described]
