"""The code that runs every command. The exit status is 2 for invalid input and 1 for other failures."""

import argparse
import atexit
import contextlib
import difflib
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from xmc_tf.common import activity
from xmc_tf.common.errors import InputError
from xmc_tf.common.process import launcher, leftovers, signals
from xmc_tf.common.process.extras import missing_package
from xmc_tf.common.process.invocation import as_called
from xmc_tf.common.process.terminal import PrintableFormatter, prepare_streams, printable

_NONE: Mapping[str, str] = MappingProxyType({})
_NEAR = 0.75  # similarity of a flag that is suggested for another one, from 0 to 1

_on_failure: list[Callable[[int], object]] = []
_on_interrupt: list[Callable[[], str]] = []


class _Handler(logging.StreamHandler):
    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        activity.wrote()


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    def format_help(self) -> str:
        """Return the help text, with examples in the form in which the user started this command."""
        return as_called(super().format_help())

    def _get_help_string(self, action: argparse.Action) -> str | None:
        said = "(default: " in (action.help or "")
        if said or action.default is None or action.default is False or action.default in ([], ""):
            return action.help
        return super()._get_help_string(action)


class UsualFlags(NamedTuple):
    """The short help of a command with many flags, which fits on one screen. ``--help-all`` shows all flags."""

    description: str
    groups: Mapping[str, Mapping[str, str]]  # title → flag by its first spelling → help in one line


class Parser(argparse.ArgumentParser):
    """A parser that suggests a similar flag for a misspelt one, or the one that has the meaning of another project's
    flag (``equivalents``). With ``usual``, its help is short.
    """

    def __init__(
        self, *, usual: UsualFlags | None = None, equivalents: Mapping[str, str] = _NONE, **options: Any
    ) -> None:
        super().__init__(**options)
        self._usual, self._equivalents = usual, equivalents
        if usual is not None:
            self.add_argument("--help-all", action=_FullHelp, nargs=0, help="show all options and exit")

    def parse_args(self, args: Any = None, namespace: Any = None) -> "GivenFlags":  # type: ignore[override]
        """Return the flags as ``GivenFlags``."""
        found = GivenFlags()
        typed = {str(one).partition("=")[0] for one in (sys.argv[1:] if args is None else args)}
        for action in reversed(self._actions):
            spellings = action.option_strings or [str(action.metavar)]
            found.spelled[action.dest] = next((one for one in spellings if one in typed), spellings[0])
        return super().parse_args(args, found)

    def format_help(self) -> str:
        if self._usual is None:
            return super().format_help()
        spelled = {
            spelling: self._spelling(action)
            for action in self._actions
            for spelling in (*action.option_strings, *([] if action.option_strings else [str(action.metavar)]))
        }
        lines = [f"{self.format_usage()}\n{self._usual.description}"]
        for title, flags in self._usual.groups.items():
            lines += ["", f"{title}:", *(f"  {spelled[flag]:<29} {text}" for flag, text in flags.items())]
        count = sum(action.help != argparse.SUPPRESS for action in self._actions)
        return as_called("\n".join([*lines, "", f"{self.prog} --help-all shows all {count} options.\n"]))

    def _spelling(self, action: argparse.Action) -> str:
        value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
        return " ".join([*action.option_strings[:1], *([] if action.nargs == 0 else [str(value)])])

    def error(self, message: str) -> NoReturn:
        kind, _, rest = message.partition(": ")
        if kind in ("unrecognized arguments", "ambiguous option") and rest.startswith("-"):
            wrong = rest.split()[0].partition("=")[0]
            # The dashes would make short flags alike.
            flags = {flag.lstrip("-"): flag for action in self._actions for flag in action.option_strings}
            similar = difflib.get_close_matches(wrong[:40].strip("-").replace("_", "-"), flags, n=1, cutoff=_NEAR)
            if meant := self._equivalents.get(wrong):
                message += f" (in xmc_tf: {meant})"
            elif similar and kind == "unrecognized arguments":
                message += f" (did you mean {flags[similar[0]]}?)"
        super().error(printable(message, keep="\n"))


class _FullHelp(argparse.Action):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS})

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(argparse.ArgumentParser.format_help(parser), end="")
        parser.exit()


class GivenFlags(argparse.Namespace):
    """Parsed flags that record which of them were on the command line (``given``) rather than defaults."""

    __slots__ = ("given", "spelled")  # beside the flags, which are in the dictionary
    given: set[str]
    spelled: dict[str, str]  # name → flag

    def __init__(self, **flags: Any) -> None:
        object.__setattr__(self, "given", set())
        object.__setattr__(self, "spelled", {})
        super().__init__(**flags)

    def __setattr__(self, name: str, value: object) -> None:
        # First, the parser sets the defaults. At the end, it passes those that are strings through their types.
        unchanged = isinstance(value, str) and vars(self).get(name) is value
        if name in vars(self) and not unchanged:
            self.given.add(name)
        super().__setattr__(name, value)

    def flags(self, *names: str) -> list[str]:
        """Return the spellings of the flags in ``names`` that are given."""
        return [self.spelled.get(name, f"--{name.replace('_', '-')}") for name in names if name in self.given]

    def refuse(self, *names: str, where: str = "", needs: str = "", expected: str = "", fix: str = "") -> None:
        """Raise InputError if a flag in ``names`` is given, but has no effect ``where``, or without what it ``needs``.

        Args:
            where: such as "with --model".
            needs: such as "a table".
        """
        if found := self.flags(*names):
            said = f"cannot be used {where}" if where else f"can only be used with {needs}"
            fix = fix or f"leave out {' and '.join(found)}"
            raise InputError(f"{', '.join(found)} {said}", expected=expected, fix=fix)

    def at_most_one(self, *names: str, why: str = "") -> None:
        """Raise InputError if more than one of the flags in ``names`` is given."""
        if len(found := self.flags(*names)) > 1:
            problem = f"{' and '.join(found)} are mutually exclusive"
            raise InputError(f"{problem}: {why}" if why else problem, fix="leave one of them out")

    def only_given(self) -> argparse.Namespace:
        return argparse.Namespace(**{name: value for name, value in vars(self).items() if name in self.given})


def make_parser(module: str, description: str, **options: Any) -> Parser:
    """Return a command's parser, without flags. Its help shows the command as the user typed it.

    Options are those of ``ArgumentParser``, and ``usual`` and ``equivalents``: see ``Parser``.
    """
    options |= {"description": description, "formatter_class": HelpFormatter}
    return Parser(prog=as_called(f"python -m {module}"), **options)


def run(main: Callable[[Sequence[str] | None], None], argv: Sequence[str] | None = None) -> None:
    """Run ``main(argv)`` and end the process. Errors and signals become a message and an exit status."""
    prepare_streams()
    handler = _Handler(sys.stderr)
    activity.enable()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname).1s %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    launcher.end_with_launcher()
    try:
        with signals.raised(_end_others):
            leftovers.remove_leftovers()
            main(argv)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): not a failure, but the flush at exit would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (Exception, KeyboardInterrupt) as error:
        # Some libraries turn what a signal raises inside them into an exception of their own.
        number = signals.received()
        if isinstance(error, KeyboardInterrupt) and not isinstance(error, signals.Interrupted):
            number = signal.SIGINT
        if number is not None:
            with contextlib.suppress(OSError):  # a launcher that was killed reads nothing any more
                sys.stdout.flush()
            signals.announce(number, *(text() for text in _on_interrupt))
            _end_others(128 + number)
            _end_at_once(128 + number)
        if (failure := _explain(error)) is None:
            raise
        code, message = failure
        sys.stdout.flush()
        print(printable(as_called(message), keep="\n"), file=sys.stderr, flush=True)
        _end_others(code)
        sys.exit(code)
    else:
        _end_at_once(0)


def on_interrupt(text: Callable[[], str]) -> None:
    """Register a function that returns a text to print when a signal ends the command; "" prints nothing."""
    _on_interrupt.append(text)


def on_failure(action: Callable[[int], object]) -> None:
    """Register ``action(code)`` to call after a command's error is printed. A failed rank uses it to end the others."""
    _on_failure.append(action)


def set_verbosity(level: int) -> None:
    """Set the log level: 0 for warnings only, 1 for progress, 2 or more for everything."""
    logging.getLogger("xmc_tf").setLevel({0: logging.WARNING, 1: logging.INFO}.get(level, logging.DEBUG))


def _explain(error: BaseException) -> tuple[int, str] | None:
    """Return the exit status and message for an error in the input or environment, or None if the error is a bug."""
    if isinstance(error, InputError):
        return 2, f"error: {error}"
    # Surrogates represent bytes that are not UTF-8, of the command line or of a file's name.
    if isinstance(error, UnicodeEncodeError) and re.search("[\ud800-\udfff]", error.object[error.start : error.end]):
        return 2, f"error: a name or text is not UTF-8: {error.object}\n  expected: names and texts in UTF-8"
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return 2, f"error: {error.filename} does not exist"
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop from "):  # of pathlib
        return 2, f"error: {str(error).removeprefix('Symlink loop from ')} is a link that leads to itself"
    if isinstance(error, ModuleNotFoundError) and (missing := missing_package(error)) is not None:
        return 2, f"error: {missing}"
    # Not imported for this: most commands read no database.
    if (sqlite := sys.modules.get("sqlite3")) is not None and isinstance(error, sqlite.DatabaseError):
        fix = "if it is damaged, remove it and read the table again"
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            fix = "the disk is full or failing: free some space and run the same command again"
        return 1, f"failed: the database that the command line names cannot be used: {error}\n  fix: {fix}"
    if isinstance(error, MemoryError):
        return 1, f"failed: out of memory ({error})"
    return (1, f"failed: {error}") if isinstance(error, OSError) else None


def _end_at_once(code: int) -> NoReturn:
    """End a process that has finished its work, without unloading modules (1.4 s) or waiting for thread pools."""
    signals.end_at_once()
    atexit._run_exitfuncs()  # loggers, MPI, temporary files
    with contextlib.suppress(OSError):  # the reader of the output has gone, so nobody is left to tell
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _end_others(code: int) -> None:
    for action in _on_failure:
        action(code)
