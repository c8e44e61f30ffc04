"""The shell of a command line: exit 2 with a message for the user's input, exit 1 for a failure."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence

from xmc_tf.common.errors import InputError


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults, and keeps the paragraphs of a description as they are written."""


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


def set_verbosity(level: int) -> None:
    """0: warnings only, 1: what is being done, 2 and more: everything."""
    logging.getLogger("xmc_tf").setLevel({0: logging.WARNING, 1: logging.INFO}.get(level, logging.DEBUG))


def _leave(code: int, message: str) -> None:
    sys.stdout.flush()
    print(message, file=sys.stderr)
    sys.exit(code)
