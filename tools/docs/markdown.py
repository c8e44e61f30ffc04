"""Pieces of Markdown that the generated pages are made of."""

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table.

    Args:
        header: the titles of the columns.
        rows: the cells, in Markdown.
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def code(text: str) -> str:
    """Return a text as code within a line."""
    return f"`{text}`" if text else ""


def plain(text: str) -> str:
    """Return a text without Markdown's meaning: a command's help, which may contain ``*`` and ``<``."""
    return re.sub(r"([\\`*_{}\[\]#])", r"\\\1", text).replace("<", "&lt;")


def block(language: str, text: str) -> str:
    """Return a code block."""
    return f"```{language}\n{text.rstrip()}\n```"
