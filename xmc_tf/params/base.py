"""The base of all parameter classes, with validation and conversion from and to JSON."""

import dataclasses
import logging
import typing
from functools import cache
from typing import Any, ClassVar, Self

from xmc_tf.common.errors import InputError
from xmc_tf.params.values import MisfitError, Shape, checked, join, nearest, shown

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Params:
    """Base of the parameter classes. They are frozen, and every value is checked on creation."""

    # PECOS's name of the class, written as `__meta__` so that PECOS can load our files.
    pecos_name: ClassVar[str] = ""
    # Keys of older files that no longer have an effect.
    retired: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = checked(field, shapes(type(self))[field.name], getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        self.check_together()

    def check_together(self) -> None:
        """Check rules that involve several parameters; raise `MisfitError` if one is violated."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Create parameters from JSON. Missing keys keep their defaults.

        Args:
            data: the block as returned by `json.load`. ``__meta__`` is ignored; retired keys cause a warning.

        Raises:
            InputError: a key is unknown, or a value is invalid; the error names the key's dotted path.
        """
        retired: list[str] = []
        params = cls.read(data, "", retired)
        warn_of_retired(retired)
        return params

    @classmethod
    def read(cls, data: Any, place: str, retired: list[str]) -> Self:
        """Read a block of a parameter file, as `from_json` does.

        Args:
            data: the block: a JSON object.
            place: path of the block in the file, for error messages.
            retired: list that receives the paths of keys that no longer have an effect.
        """
        if not isinstance(data, dict):
            where = place or cls.__name__
            raise MisfitError(where, "is not a block", expected="a JSON object {...}", received=shown(data))
        fields = shapes(cls)
        values: dict[str, Any] = {}
        for key, value in data.items():
            if key in cls.retired:
                retired.append(join(place, key))
            elif key in fields and value is None and fields[key].is_block:
                continue  # null for a block or a list of blocks keeps the default
            elif key in fields:
                values[key] = _read_value(fields[key], value, join(place, key), retired)
            elif key != "__meta__":
                raise unknown_key(key, place, list(fields))
        try:
            return cls(**values)
        except MisfitError as misfit:
            raise misfit.within(place) if place else misfit from None

    def to_json(self) -> dict[str, Any]:
        """Return the parameters in PECOS's form for `json.dump`."""
        data: dict[str, Any] = {"__meta__": {"class_fullname": self.pecos_name}} if self.pecos_name else {}
        for field in dataclasses.fields(self):
            data[field.name] = _to_json(getattr(self, field.name))
        return data


_SHAPES: dict[type, dict[str, Shape]] = {}


def shapes(cls: type[Params]) -> dict[str, Shape]:
    """Return the allowed form of each parameter of a class."""
    if cls not in _SHAPES:
        hints = typing.get_type_hints(cls)
        _SHAPES[cls] = {field.name: Shape.of(hints[field.name]) for field in dataclasses.fields(cls)}
    return _SHAPES[cls]


def per_level(chain: Any, depth: int, name: str = "the chain") -> tuple[Any, ...]:
    """Return one entry for each level. If a list has another length, its first entries are dropped, or its first entry
    is repeated, with a warning.
    """
    if not isinstance(chain, list | tuple):
        return (chain,) * depth
    entries = tuple(chain)
    if not entries:
        raise InputError(
            f"{name} is empty", expected=f"{depth} entries, one per level of the tree, or a single one for all",
            received="an empty list", fix="omit the list to use the defaults",
        )  # fmt: skip
    if len(entries) != depth:
        _warn_of_another_depth(name, len(entries), depth)
    return entries[:1] * (depth - len(entries)) + entries[max(0, len(entries) - depth) :]


@cache
def _warn_of_another_depth(name: str, entries: int, depth: int) -> None:
    done = f"the last {depth} are used" if entries > depth else "the first is also used for the levels above"
    _LOG.warning("%s has %d entries, the tree has %d levels: %s", name, entries, depth, done)


def unknown_key(key: str, place: str, known: list[str]) -> MisfitError:
    """Return the error for an unknown key, which suggests the most similar known key."""
    close = nearest(key, known)
    return MisfitError(
        join(place, key), "is not a parameter", expected="one of " + ", ".join(known), received=shown(key),
        fix=f"did you mean {shown(close)}?" if close else "leave it out",
    )  # fmt: skip


def warn_of_retired(keys: list[str]) -> None:
    if keys:
        _LOG.warning("retired parameters have no effect and were ignored: %s", ", ".join(keys))


def with_effect(block: Any) -> Any:
    """Return parameters in JSON form, without those that do not affect the result."""
    if isinstance(block, dict):
        return {name: with_effect(value) for name, value in block.items() if name not in ("threads", "verbose")}
    return [with_effect(value) for value in block] if isinstance(block, list | tuple) else block


def _read_value(shape: Shape, value: Any, place: str, retired: list[str]) -> Any:
    if not issubclass(shape.type, Params):
        return value
    if shape.chain and isinstance(value, list | tuple):
        return tuple(shape.type.read(entry, f"{place}[{i}]", retired) for i, entry in enumerate(value))
    return shape.type.read(value, place, retired)


def _to_json(value: Any) -> Any:
    if isinstance(value, Params):
        return value.to_json()
    if isinstance(value, tuple):
        return [_to_json(entry) for entry in value]
    return value
