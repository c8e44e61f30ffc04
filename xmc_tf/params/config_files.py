"""Flags of a command in a TOML file, as keys of one table."""

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import existing_file
from xmc_tf.params.base import unknown_key
from xmc_tf.params.values import MisfitError, shown

PREPARE = "prepare"  # the table of a configuration that also has the parameters of a training


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file, or raise an error that names it."""
    file = existing_file(path, "configuration")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file} is not TOML: {error}", expected="lines such as max_len = 50") from None


def with_config(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the command line with a TOML file in it replaced by the flags that are its keys; other flags win over it.

    The keys are in the file's table ``[prepare]``, or, if it has none, at its top.
    """
    if not (paths := [word for word in words if word.lower().endswith(".toml")]):
        return list(words)
    content = read_toml(paths[0])
    content = content.get(PREPARE, content)
    actions = {action.dest: action for action in parser._actions if action.dest != "help"}
    flags: list[str] = []
    places: list[str] = []
    try:
        for key, value in content.items():
            if (action := actions.get(key.replace("-", "_"))) is None:
                raise unknown_key(key, "", list(actions))
            values = [_text(key, one) for one in (value if isinstance(value, list) else [value])]
            if not action.option_strings:
                places += values
            elif action.nargs == 0:
                flags += action.option_strings[-1:] if value is True else []
            elif action.nargs is None:
                flags.append(f"{action.option_strings[-1]}={','.join(values)}")
            else:
                flags += [action.option_strings[-1], *values]
    except MisfitError as misfit:
        raise misfit.found_in(paths[0]) from None
    rest = [word for word in words if word != paths[0]]
    return [*flags, *rest, *places]


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        expected = "a text, a number, or a list of them"
        raise MisfitError(key, "has the wrong type", expected=expected, received=shown(value))
    return str(value)
