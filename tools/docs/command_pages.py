"""The reference of the commands: usage, options and examples, read from each command's own parser."""

import argparse
import re
from importlib import import_module
from importlib.util import find_spec

from tools.docs.markdown import block, code, plain, table
from xmc_tf.__main__ import COMMANDS, MODULES
from xmc_tf.params import WITHOUT_EFFECT
from xmc_tf.params.flags import SHORT_FORMS

_CALL = re.compile(r"python -m (xmc_tf(?:\.\w+)+)")
_CALLED = {module: f"xmc-tf {command}" for command, module in MODULES.items()}


def page() -> str:
    """Return the page of all commands."""
    parts = [
        "# Commands",
        "Reference: all commands, with usage, options and examples. The page is generated from the commands' parsers; "
        "`xmc-tf COMMAND --help` prints the same, of `train` the most used options (`--help-all`: all). "
        "`python -m MODULE` runs the same command as `xmc-tf COMMAND`.",
        table(
            ["command", "module", ""],
            (
                [f"[`xmc-tf {command}`](#{anchor(command)})", code(module), about]
                for group in COMMANDS.values()
                for command, (module, about) in group.items()
            ),
        ),
    ]
    for title, commands in COMMANDS.items():
        parts.append(f"## {title}")
        parts += [section(command) for command in commands]
    parts += [
        "## Flags of PECOS without effect",
        "They are accepted, so that scripts written for PECOS run, and named in a warning.",
        table(
            ["command", "flag", "reason"],
            (
                [code(f"xmc_tf.{command}"), ", ".join(map(code, (*SHORT_FORMS.get(flag, ()), flag))), reason]
                for command, flags in WITHOUT_EFFECT.items()
                for flag, reason in flags.items()
            ),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def anchor(command: str) -> str:
    """Return the anchor of a command's section."""
    return f"xmc-tf-{command.replace(' ', '-')}"


def section(command: str) -> str:
    """Return the section of one command, with those of its sub-commands."""
    parser = parser_of(MODULES[command])
    parts = [f"### xmc-tf {command} {{#{anchor(command)}}}", *_of_parser(parser)]
    for name, sub_parser in sub_parsers(parser).items():
        parts += [f"#### xmc-tf {command} {name} {{#{anchor(f'{command} {name}')}}}", *_of_parser(sub_parser)]
    return "\n\n".join(parts)


def parser_of(module: str) -> argparse.ArgumentParser:
    """Return the parser of a command.

    Args:
        module: the command's module or package, as in ``xmc_tf.__main__.COMMANDS``.
    """
    spec = find_spec(module)
    if spec is None:
        raise ModuleNotFoundError(module)
    is_package = spec.submodule_search_locations is not None
    parser = import_module(f"{module}.__main__" if is_package else module).parser()
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def sub_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a command's own sub-commands, such as ``preprocess build``."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= action.choices
    return found


def _of_parser(parser: argparse.ArgumentParser) -> list[str]:
    parts = [block("text", _as_called(parser.format_usage().removeprefix("usage: "))), _description(parser)]
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        actions = [action for action in actions if not isinstance(action, argparse._SubParsersAction)]
        if actions:
            title = (group.title or "options").partition("\n")[0]
            parts.append(f"**{plain(_as_called(title[:1].upper() + title[1:]))}**")
            parts.append(table(["option", "default", "meaning"], (_row(parser, action) for action in actions)))
    return [part for part in parts if part]


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    value = _value(parser, action)
    if action.option_strings:
        names = ", ".join(f"`{flag}`" for flag in action.option_strings)
        name = f"{names} {code(value)}".strip()
    else:
        name = code(value)
    default = action.default
    has_default = default is not None and default is not False and default not in (argparse.SUPPRESS, "", [])
    required = "required" if action.required and action.option_strings else ""
    help_text = (action.help or "") % {"prog": parser.prog, **vars(action)}
    return [name, code(str(default)) if has_default else required, plain(_as_called(help_text))]


def _value(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    formatter = parser._get_formatter()
    if action.option_strings:
        return formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
    return formatter._format_args(action, formatter._get_default_metavar_for_positional(action))


def _description(parser: argparse.ArgumentParser) -> str:
    """Return the description, its indented lines as code."""
    parts: list[str] = []
    for is_code, lines in _runs(_as_called(parser.description or "").splitlines()):
        text = "\n".join(lines)
        parts.append(block("text", re.sub("^    ", "", text, flags=re.MULTILINE)) if is_code else plain(text))
    return "\n\n".join(parts)


def _runs(lines: list[str]) -> list[tuple[bool, list[str]]]:
    """Return the lines in runs of the same kind: (whether they are indented, lines)."""
    runs: list[tuple[bool, list[str]]] = []
    for line in lines:
        is_code = line.startswith("    ")
        if runs and (runs[-1][0] == is_code or not line):
            runs[-1][1].append(line)
        else:
            runs.append((is_code, [line]))
    return runs


def _as_called(text: str) -> str:
    """Return a text in which the commands are called by their names."""
    return _CALL.sub(lambda found: _CALLED.get(found[1], found[0]), text)
