import logging
import sys

# Invisible, but part of words in several scripts and of emoji.
_JOINERS = "\u200c\u200d"


def printable(text: str, keep: str = "") -> str:
    """Return the text with control characters escaped, except those in ``keep``, so that a terminal obeys none."""
    if text.isprintable():
        return text
    kept = keep + _JOINERS
    return "".join(one if one.isprintable() or one in kept else ascii(one)[1:-1] for one in text)


class PrintableFormatter(logging.Formatter):
    """A log formatter that escapes control characters, for example in names of files and labels."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")


def prepare_streams() -> None:
    """Make standard output and error print names that are not UTF-8 as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a caller may have put something else there
            stream.reconfigure(errors="backslashreplace")
