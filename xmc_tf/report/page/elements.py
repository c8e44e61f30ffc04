"""HTML elements: escaped texts, numbers and tables. ``Html`` arguments must be escaped, by ``text`` or ``name``."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

Html: TypeAlias = str
"""Text that is HTML already."""

_NAME_LENGTH = 120
_JOINT = re.compile(r"(?<=\w[._/])(?=\w)")
# Embeddings and overrides of the writing direction, which could reverse the text after a name.
_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


@dataclass(frozen=True)
class Cell:
    html: Html
    sort: float | None = None  # default: sorted by its text
    kind: str = "number"  # "text" or "number"
    style: str = ""  # CSS class
    shade: float | None = None  # strength of the background, from 0 to 1

    @property
    def classes(self) -> str:
        return f"{self.kind} {self.style}".strip()


def clean(value: str, most: int = _NAME_LENGTH) -> str:
    """Return the beginning of a text, with control characters replaced."""
    # Cut first: a text can be megabytes long.
    start = value[: most + 1]
    control = {one for one in start if unicodedata.category(one) in ("Cc", "Cs") or ord(one) in _DIRECTIONS}
    shown = "".join(" " if one in "\n\r\t" else "\N{REPLACEMENT CHARACTER}" if one in control else one for one in start)
    return shown[: most - 1] + "…" if len(value) > most else shown


def text(value: str, most: int = _NAME_LENGTH) -> Html:
    """Return the beginning of a text, escaped for HTML."""
    return escape(clean(value, most))


def name(value: str) -> Html:
    """Return an escaped name, isolated so that its writing direction does not affect the text around it.

    Names such as ``numpy.linalg`` may be broken after a point, a stroke or a slash, not only within a word.
    """
    return f"<bdi>{_JOINT.sub('<wbr>', text(value))}</bdi>"


def percent(value: float | None) -> str:
    """Return a share as a percentage with two decimals, or a dash if it is undefined."""
    return "–" if value is None or value != value else f"{100 * value:.2f}"


def share(value: float | None) -> Cell:
    return Cell(percent(value), -1.0 if value is None or value != value else float(value))


def count(value: int | None) -> Cell:
    return Cell("–", -1.0) if value is None else Cell(f"{int(value):,}", float(value))


def words(value: str) -> Cell:
    return Cell(name(value), kind="text")


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, style: str = "", tall: str = "",
    about: Mapping[str, str] | None = None,
) -> Html:  # fmt: skip
    """Return a table that scrolls on its own if it is wider than the page. ``about`` maps columns to tooltips."""
    hints = {column: f' title="{escape(hint)}"' for column, hint in (about or {}).items()}
    head = "".join(
        f'<th scope="col" class="{cell.classes}"{hints.get(column, "")}>{escape(column)}</th>'
        for column, cell in zip(columns, rows[0] if rows else [Cell("")] * len(columns), strict=True)
    )
    body = "\n".join(
        "<tr>" + "".join(_cell(one, place == 0) for place, one in enumerate(row)) + "</tr>" for row in rows
    )
    identifier = f'id="{tall}" ' if tall else ""
    # The visible caption is outside the box, so that it does not scroll with a wide table.
    return (
        f'<p class="caption" aria-hidden="true">{escape(caption)}</p>'
        f'<div class="scroll{" tall" if tall else ""}" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f'<table {identifier}class="{style}" aria-label="{escape(caption)}">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(cell: Cell, is_head: bool) -> Html:
    tag, scope = ("th", ' scope="row"') if is_head else ("td", "")
    sort = "" if cell.sort is None else f' data-sort="{cell.sort:.9g}"'
    shade = "" if cell.shade is None else f' style="--part:{cell.shade:.2f}"'
    return f'<{tag}{scope} class="{cell.classes}"{sort}{shade}>{cell.html}</{tag}>'


def section(identifier: str, title: str, *parts: Html) -> Html:
    body = "\n".join(part for part in parts if part)
    return (
        f'<section id="{identifier}" aria-labelledby="{identifier}-title">\n'
        f'<h2 id="{identifier}-title">{escape(title)}</h2>\n{body}\n</section>'
    )


def paragraph(html: Html, style: str = "") -> Html:
    return f'<p class="{style}">{html}</p>' if style else f"<p>{html}</p>"
