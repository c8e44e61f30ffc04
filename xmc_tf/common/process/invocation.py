"""The way the user started a command (``xmc-tf predict`` or ``python predict.py``), for use in messages."""

import re
from collections.abc import Mapping

_MODULE_CALL = re.compile(r"python -m (xmc_tf(?:\.[a-z]+)+)")


class _Invocation:
    command: str | None = None
    calls: Mapping[str, str] = {}


def started_as(command: str, calls: Mapping[str, str]) -> None:
    """Record the running command, such as ``xmc-tf predict``, and the corresponding call for each module."""
    _Invocation.command, _Invocation.calls = command, dict(calls)


def command_name() -> str | None:
    """Return the command as the user started it, or None for ``python -m xmc_tf.<module>`` and other programs."""
    return _Invocation.command


def as_called(text: str) -> str:
    """Rewrite the commands in a text into the form in which the user started this command."""
    return _MODULE_CALL.sub(lambda found: _Invocation.calls.get(found[1], found[0]), text)
