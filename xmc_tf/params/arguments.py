"""Command-line flags from parameter classes, and parameters from flags."""

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import whole
from xmc_tf.params.base import Params, shapes
from xmc_tf.params.values import MisfitError

P = TypeVar("P", bound=Params)
_METAVARS = {bool: "true/false", int: "INT", float: "NUMBER"}


def add_arguments(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    cls: type[Params],
    *names: str,
    flags: Mapping[str, tuple[str, ...]] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Add a flag for each named parameter (default: all single values) with the class's type, choices and help."""
    known = {field.name: field for field in dataclasses.fields(cls)}
    for name in names or [name for name, shape in shapes(cls).items() if not dataclasses.is_dataclass(shape.type)]:
        field, shape = known[name], shapes(cls)[name]
        parser.add_argument(
            *(flags or {}).get(name, (f"--{name.replace('_', '-')}",)), dest=name,
            type={bool: truth, int: whole}.get(shape.type, shape.type), choices=field.metadata["choices"] or None,
            default=(defaults or {}).get(name, field.default),
            metavar=None if field.metadata["choices"] else _METAVARS.get(shape.type, "TEXT"),
            help=field.metadata["help"].replace("%", "%%"),
        )  # fmt: skip


def from_arguments(cls: type[P], arguments: argparse.Namespace, **given: Any) -> P:
    """Return the parameters; a flag that several nested blocks have (``threads``) applies to all, as in PECOS."""
    values = dict(given)
    for name, shape in shapes(cls).items():
        if name in values:
            continue
        if issubclass(shape.type, Params):
            values[name] = from_arguments(shape.type, arguments)
        elif getattr(arguments, name, None) is not None:
            values[name] = getattr(arguments, name)
    try:
        return cls(**values)
    except MisfitError as misfit:
        flag = f"--{misfit.key.replace('_', '-')}"
        fault = f"{flag} {misfit.fault}"
        raise InputError(fault, expected=misfit.expected, received=misfit.received, fix=misfit.fix) from None


def truth(text: str) -> bool:
    """Parse ``true`` or ``false`` (also yes, no, 1, 0)."""
    if text.lower() in ("true", "t", "yes", "y", "1"):
        return True
    if text.lower() in ("false", "f", "no", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, received {text!r}")
