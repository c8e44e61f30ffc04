"""Allowed values of parameters, and the error for values that are not allowed."""

import dataclasses
import difflib
import json
import math
import numbers
import operator
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import LARGEST_INT32


class MisfitError(InputError):
    """An error about the value of a parameter. It stores the key, so that enclosing blocks can prepend their own."""

    def __init__(self, key: str, problem: str, *, expected: str, received: str, fix: str = "") -> None:
        super().__init__(f"{key} {problem}", expected=expected, received=received, fix=fix)
        self.key, self.fault = key, problem

    def within(self, place: str) -> Self:
        """Return the same error with ``place`` prepended to the key: ``place.key``."""
        return type(self)(
            join(place, self.key), self.fault, expected=self.expected, received=self.received, fix=self.fix
        )


def join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def param_field(
    default: Any, *, help: str, choices: Sequence[str] = (), low: float | None = None, high: float | None = None,
    above: float | None = None, below: float | None = None, also: Sequence[float] = (),
    parse: Callable[[str], str] | None = None,
) -> Any:  # fmt: skip
    """Return a field of a parameter class, with its default, help and allowed values."""
    metadata = {"help": help, "choices": tuple(choices), "low": low, "high": high, "above": above, "below": below}
    return dataclasses.field(default=default, metadata={**metadata, "also": tuple(also), "parse": parse})


@dataclasses.dataclass(frozen=True)
class Shape:
    """The type of a parameter, derived from its annotation."""

    type: type
    optional: bool
    chain: bool

    @classmethod
    def of(cls, annotation: Any) -> Self:
        """Return the shape of ``int``, ``int | None``, ``str | tuple[str, ...]`` and the like."""
        union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
        parts = typing.get_args(annotation) if union else (annotation,)
        origins = [typing.get_origin(part) for part in parts]
        plain = [part for part, origin in zip(parts, origins, strict=True) if part is not types.NoneType and not origin]
        return cls(type=plain[0], optional=types.NoneType in parts, chain=tuple in origins)

    @property
    def is_block(self) -> bool:
        """True if the parameter is a parameter class or can be a list with one entry per level."""
        return self.chain or dataclasses.is_dataclass(self.type)


def checked(field: dataclasses.Field, shape: Shape, value: Any) -> Any:
    """Return ``value`` in the parameter's canonical form, or raise `MisfitError`."""
    if shape.chain and isinstance(value, list | tuple):
        if not value:
            wanted = "at least one entry, for the first level"
            raise MisfitError(field.name, "is an empty list", expected=wanted, received="[]")
        return tuple(_one(field, shape, f"{field.name}[{i}]", entry) for i, entry in enumerate(value))
    return _one(field, shape, field.name, value)


def _one(field: dataclasses.Field, shape: Shape, key: str, value: Any) -> Any:
    if value is None and shape.optional:
        return None
    value, meta = _typed(field, shape, key, value), field.metadata
    if isinstance(value, str):
        if meta.get("choices") and value not in meta["choices"]:
            close = nearest(value, meta["choices"])
            fix = f"did you mean {shown(close)}?" if close else "use one of them"
            problem = "is not an allowed value"
            raise MisfitError(key, problem, expected=expected(field, shape), received=shown(value), fix=fix)
        if meta.get("parse"):
            try:
                value = meta["parse"](value)
            except ValueError as error:
                raise MisfitError(key, "is not an allowed value", expected=str(error), received=shown(value)) from None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        bounds = [(holds, meta[name]) for name, holds, _ in _BOUNDS if meta.get(name) is not None]
        inside = math.isfinite(value) and all(holds(value, bound) for holds, bound in bounds)
        if value not in meta.get("also", ()) and not inside:
            raise MisfitError(key, "is out of range", expected=expected(field, shape), received=shown(value))
        if type(value) is int and meta.get("high") is None and value > LARGEST_INT32:
            raise MisfitError(key, "is out of range", expected=f"at most {LARGEST_INT32}", received=shown(value))
    return value


def _typed(field: dataclasses.Field, shape: Shape, key: str, value: Any) -> Any:
    """Return ``value`` converted to the parameter's type. For a float, 1 is accepted, but true is not."""
    kind, fix = shape.type, ""
    is_truth = isinstance(value, bool) or type(value).__name__ == "bool"  # numpy's bool too
    if kind is bool and is_truth:
        return bool(value)
    if kind is int and isinstance(value, numbers.Integral) and not is_truth:
        return int(value)
    if kind is float and isinstance(value, numbers.Real) and not is_truth:
        return float(value)
    if kind not in (bool, int, float) and isinstance(value, kind):
        return value
    if isinstance(value, str) and kind in (bool, int, float):
        fix = f"write {'true or false' if kind is bool else 'the number'} without quotes"
    elif kind is int and isinstance(value, float) and value.is_integer():
        fix = f"write {int(value)}"
    received = f"{shown(value)} ({_TYPE_NAMES.get(type(value), type(value).__name__)})"
    raise MisfitError(key, "has the wrong type", expected=expected(field, shape), received=received, fix=fix)


_BOUNDS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("low", operator.ge, "at least"),
    ("above", operator.gt, "above"),
    ("high", operator.le, "at most"),
    ("below", operator.lt, "below"),
)
_TYPE_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    tuple: "a list",
    dict: "a block",
    types.NoneType: "null",
}


def expected(field: dataclasses.Field, shape: Shape) -> str:
    """Describe the allowed values of a parameter in words."""
    meta = field.metadata
    if meta.get("choices"):
        words = "one of " + ", ".join(meta["choices"])
    else:
        words = _TYPE_NAMES.get(shape.type, f"a block of {shape.type.__name__}")
        bounds = [
            f"{sign} {meta[name] if isinstance(meta[name], int) else format(meta[name], 'g')}"
            for name, _, sign in _BOUNDS
            if meta.get(name) is not None
        ]
        words = " ".join([words, " and ".join(bounds)]).strip()
    words += "".join(f", or {value:g}" for value in meta.get("also", ()))
    if shape.chain:
        words += ", or a list of them, one per level"
    return words


def shown(value: Any) -> str:
    """Return a value as JSON, shortened if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."


_LONGEST_COMPARED = 200


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, or None. Long names are not compared, because that would be slow."""
    if len(name) > _LONGEST_COMPARED:
        return None
    by_lower = {entry.lower(): entry for entry in known}
    close = difflib.get_close_matches(name.lower().replace("-", "_"), by_lower, n=1) or difflib.get_close_matches(
        name.lower(), by_lower, n=1
    )
    return by_lower[close[0]] if close else None
