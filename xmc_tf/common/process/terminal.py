import json
import logging
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

# Invisible, but part of words in several scripts and of emoji.
_JOINERS = "\u200c\u200d"


def printable(text: str, keep: str = "") -> str:
    """Escape the text's control characters, except those in ``keep``, so that a terminal does not interpret them."""
    if text.isprintable():
        return text
    kept = keep + _JOINERS
    return "".join(one if one.isprintable() or one in kept else ascii(one)[1:-1] for one in text)


def printable_json(content: Any) -> str:
    """Return JSON on one line in which characters that `printable` would change are escaped as JSON does."""
    text = json.dumps(content, ensure_ascii=False)
    return text if text.isprintable() else "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


class PrintableFormatter(logging.Formatter):
    """A log formatter that escapes control characters, for example in the names of files and labels."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")


class PrintableOutput:
    """Standard output that escapes control characters, because anyone may have written the names and texts in it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(printable(text, keep="\n\t"))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def prepare_streams() -> None:
    """Make standard output escape control characters, and both streams names that are not UTF-8, which else fail."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a caller may have put something else there
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = cast(TextIO, PrintableOutput(sys.stdout))


def allow_control_characters() -> None:
    """Print to standard output unchanged from now on: for commands that use colors, or show the output of others."""
    if isinstance(sys.stdout, PrintableOutput):
        sys.stdout = sys.stdout.stream
