"""The reference of the parameter classes: name, type, default and meaning, read from each class."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import xmc_tf
from tools.docs.markdown import code, plain, table
from xmc_tf.params.base import Params, shapes
from xmc_tf.params.values import Shape


def classes() -> list[type[Params]]:
    """Return the public parameter classes, larger ones before the ones they contain."""
    found = [getattr(xmc_tf, name) for name in xmc_tf.__all__ if name.endswith("Params")]
    rank = {cls: index for index, cls in enumerate(found)}
    return sorted(found, key=lambda cls: (-_depth(cls), rank[cls]))


def page() -> str:
    """Return the page of all parameter classes."""
    parts = [
        "# Parameters",
        "Reference: the parameters of training and prediction. The page is generated from the classes. Every value is "
        "checked when an object is made; `to_json()` and `from_json()` write and read the blocks of `params.json`, "
        "with PECOS's names.",
        table(["class", ""], ([f"[`{cls.__name__}`][xmc_tf.{cls.__name__}]", _summary(cls)] for cls in classes())),
        *(section(cls) for cls in classes()),
    ]
    return "\n\n".join(parts) + "\n"


def section(cls: type[Params]) -> str:
    """Return the section of one class."""
    rows = (_row(field, shapes(cls)[field.name]) for field in dataclasses.fields(cls))
    options = "    options:\n      members: false\n      show_bases: false\n      show_signature: false"
    return f"::: xmc_tf.{cls.__name__}\n{options}\n\n{table(['parameter', 'type', 'default', 'meaning'], rows)}"


def _depth(cls: type[Params]) -> int:
    """Return how deeply the blocks of a class are nested."""
    inner = [shape.type for shape in shapes(cls).values() if issubclass(shape.type, Params)]
    return 1 + max(map(_depth, inner)) if inner else 0


def _summary(cls: type[Params]) -> str:
    return plain((cls.__doc__ or "").partition("\n")[0])


def _row(field: dataclasses.Field, shape: Shape) -> list[str]:
    return [code(field.name), _type(shape), _default(field), _meaning(field.metadata)]


def _type(shape: Shape) -> str:
    name = shape.type.__name__
    name = f"[`{name}`][xmc_tf.{name}]" if issubclass(shape.type, Params) else code(name)
    return name + (", or one per level" if shape.chain else "") + (", or `None`" if shape.optional else "")


def _default(field: dataclasses.Field) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return code(f"{field.default_factory.__name__}()") if isinstance(field.default_factory, type) else ""
    value = field.default
    return code(f"{type(value).__name__}()" if isinstance(value, Params) else repr(value))


def _meaning(metadata: Mapping[str, Any]) -> str:
    text = plain(metadata.get("help", ""))
    limits = [
        *([f"at least {metadata['low']:g}"] if metadata.get("low") is not None else []),
        *([f"more than {metadata['above']:g}"] if metadata.get("above") is not None else []),
        *([f"at most {metadata['high']:,}"] if metadata.get("high") is not None else []),
        *([f"less than {metadata['below']:g}"] if metadata.get("below") is not None else []),
    ]
    choices = ", ".join(map(code, metadata.get("choices", ())))
    return text + (f"; one of {choices}" if choices else "") + (f" ({', '.join(limits)})" if limits else "")
