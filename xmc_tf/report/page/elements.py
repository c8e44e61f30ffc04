"""Cells, tables, and readable texts and numbers, for the templates."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

_NAME_LENGTH = 120
_JOINT = re.compile(r"(?<=\w[._/])(?=\w)")
# Embeddings and overrides of the writing direction, which could reverse the text after a name.
_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


@dataclass(frozen=True)
class Cell:
    text: str  # escaped by the template, unless it is Markup
    sort: float | None = None  # default: sorted by its text
    kind: str = "number"  # "text" or "number"
    style: str = ""  # CSS class
    shade: float | None = None  # strength of the background, from 0 to 1

    @property
    def classes(self) -> str:
        return f"{self.kind} {self.style}".strip()


@dataclass(frozen=True)
class Table:
    """A table that scrolls on its own if it is wider than the page."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    style: str = ""  # CSS class
    identifier: str = ""  # of a tall table, which also scrolls down on its own
    hints: Mapping[str, str] = field(default_factory=dict)  # tooltips by column

    @property
    def head(self) -> list[tuple[str, str]]:
        """The name and the CSS classes of each column."""
        cells = self.rows[0] if self.rows else [Cell("")] * len(self.columns)
        return [(column, cell.classes) for column, cell in zip(self.columns, cells, strict=True)]


def clean(value: str, most: int = _NAME_LENGTH) -> str:
    """Return the beginning of a text, with control characters replaced."""
    # Cut first: a text can be megabytes long.
    start = value[: most + 1]
    control = {one for one in start if unicodedata.category(one) in ("Cc", "Cs") or ord(one) in _DIRECTIONS}
    shown = "".join(" " if one in "\n\r\t" else "\N{REPLACEMENT CHARACTER}" if one in control else one for one in start)
    return shown[: most - 1] + "…" if len(value) > most else shown


def name(value: str) -> Markup:
    """Return an escaped name, isolated so that its writing direction does not affect the text around it.

    Names such as ``numpy.linalg`` may be broken after a point, a stroke or a slash, not only within a word.
    """
    return Markup(f"<bdi>{_JOINT.sub('<wbr>', str(escape(clean(value))))}</bdi>")


def percent(value: float | None) -> str:
    """Return a share as a percentage with two decimals, or a dash if it is undefined."""
    return "–" if value is None or value != value else f"{100 * value:.2f}"


def thousands(value: int) -> str:
    return f"{value:,}"


def share(value: float | None) -> Cell:
    return Cell(percent(value), -1.0 if value is None or value != value else float(value))


def count(value: int | None) -> Cell:
    return Cell("–", -1.0) if value is None else Cell(f"{int(value):,}", float(value))


def words(value: str) -> Cell:
    return Cell(name(value), kind="text")
