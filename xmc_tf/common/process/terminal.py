import logging
import sys

# Invisible, but part of words in several scripts and of emoji.
_JOINERS = "\u200c\u200d"


def printable(text: str, keep: str = "") -> str:
    """Escape the text's control characters, except those in ``keep``, so that a terminal does not interpret them."""
    if text.isprintable():
        return text
    kept = keep + _JOINERS
    return "".join(one if one.isprintable() or one in kept else ascii(one)[1:-1] for one in text)


class PrintableFormatter(logging.Formatter):
    """A log formatter that escapes control characters, for example in the names of files and labels."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")


def prepare_streams() -> None:
    """Make standard output and error escape names that are not UTF-8. By default, printing them fails."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a caller may have put something else there
            stream.reconfigure(errors="backslashreplace")
