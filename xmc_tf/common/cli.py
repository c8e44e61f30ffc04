"""The shell of a command line: exit 2 with a message for the user's input, exit 1 for a failure."""

import argparse
import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence

from xmc_tf.common.errors import InputError

_on_failure: list[Callable[[int], object]] = []


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults where there are any, and keeps the paragraphs of a description as they are written."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False or action.default == []:
            return action.help
        return super()._get_help_string(action)


def run(main: Callable[[Sequence[str] | None], None], argv: Sequence[str] | None = None) -> None:
    """Runs ``main(argv)`` and turns what it raises into a message and an exit code."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname).1s %(message)s", datefmt="%H:%M:%S"
    )
    try:
        main(argv)
    except InputError as error:
        _leave(2, f"error: {error}")
    except FileNotFoundError as error:
        _leave(2, f"error: {error.filename} does not exist")
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): not a failure, but the flush at exit would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        _leave(130, "stopped by the keyboard")
    except MemoryError as error:
        _leave(1, f"failed: out of memory ({error})")
    except OSError as error:
        _leave(1, f"failed: {error}")
    else:
        _end_at_once()


def on_failure(action: Callable[[int], object]) -> None:
    """Has ``action(code)`` called when a command line has failed and said so, before the process ends.

    One of several ranks ends the others this way, who would wait for it.
    """
    _on_failure.append(action)


def set_verbosity(level: int) -> None:
    """0: warnings only, 1: what is being done, 2 and more: everything."""
    logging.getLogger("xmc_tf").setLevel({0: logging.WARNING, 1: logging.INFO}.get(level, logging.DEBUG))


def _end_at_once() -> None:
    """Ends a process whose work is done, without taking its modules apart.

    With TensorFlow loaded that takes the interpreter most of a second, a quarter of the time that one query needs.
    """
    atexit._run_exitfuncs()  # loggers, MPI, temporary files
    with contextlib.suppress(BrokenPipeError):  # who read the output has gone: nothing is left to be told
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def _leave(code: int, message: str) -> None:
    sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)
    for action in _on_failure:
        action(code)
    sys.exit(code)
