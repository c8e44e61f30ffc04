"""Text of others on the user's terminal: label names and documents may hold control characters, even whole commands."""

import logging
import sys

# Invisible, but part of words in several scripts and of emoji.
_JOINERS = "\u200c\u200d"


def printable(text: str, keep: str = "") -> str:
    r"""Return the text with control characters written as escapes, so that a terminal shows and does not obey them.

    Example:
        >>> printable("red\x1b[31m")
        'red\\x1b[31m'

    Args:
        text: what is to be printed; files get it as it is.
        keep: control characters that stay, such as line ends.
    """
    if text.isprintable():
        return text
    kept = keep + _JOINERS
    return "".join(one if one.isprintable() or one in kept else ascii(one)[1:-1] for one in text)


class PrintableFormatter(logging.Formatter):
    """Formats log lines whose names of files and labels cannot move the cursor."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line with control characters as escapes."""
        return printable(super().format(record), keep="\n\t")


def prepare_streams() -> None:
    """Have names that are not UTF-8 printed as escapes; by default standard output fails on them."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a caller may have put something else there
            stream.reconfigure(errors="backslashreplace")
