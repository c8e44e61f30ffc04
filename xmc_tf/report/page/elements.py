"""Parts of the page: escaped texts, numbers, tables, figures.

All texts that others have written (names, documents, titles) come into the page through :func:`text` or :func:`name`.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

Html: TypeAlias = str
"""Text that is HTML already."""

NONE = "–"
_NAME_LENGTH = 120
# Embeddings and overrides of the writing direction: one in a name could reverse all that follows it.
_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Args:
        html: its content.
        sort: the value that it is sorted by; None: it is sorted by its text.
        kind: "text" or "number".
        style: name of a class of the style sheet.
        shade: strength of the background, from 0 to 1.
    """

    html: Html
    sort: float | None = None
    kind: str = "number"
    style: str = ""
    shade: float | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        title: its heading.
        kind: "text" or "number".
        about: what it means, as a tooltip.
    """

    title: str
    kind: str = "number"
    about: str = ""


def clean(value: str, most: int = _NAME_LENGTH) -> str:
    """Return a text without control characters, cut to a length.

    Args:
        value: the text.
        most: maximum number of characters.
    """
    # Cut first: a text can be megabytes long.
    start = value[: most + 1]
    shown = "".join(
        " " if one in "\n\r\t" else "\N{REPLACEMENT CHARACTER}" if _is_control(one) else one for one in start
    )
    return shown[: most - 1] + "…" if len(value) > most else shown


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cs") or ord(letter) in _DIRECTIONS


def text(value: str, most: int = _NAME_LENGTH) -> Html:
    """Return a text for the page."""
    return escape(clean(value, most))


def name(value: str) -> Html:
    """Return a name whose writing direction does not affect what surrounds it."""
    return f"<bdi>{text(value)}</bdi>"


def percent(value: float | None) -> str:
    """Return a share as a percentage with two decimals; a dash if it is undefined."""
    return NONE if value is None or value != value else f"{100 * value:.2f}"


def share(value: float | None) -> Cell:
    """Return a cell with a share as a percentage."""
    return Cell(percent(value), -1.0 if value is None or value != value else float(value))


def count(value: int | None) -> Cell:
    """Return a cell with a whole number."""
    return Cell(NONE, -1.0) if value is None else Cell(f"{int(value):,}", float(value))


def words(value: str) -> Cell:
    """Return a cell with a name."""
    return Cell(name(value), kind="text")


def table(
    caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, style: str = "", tall: str = ""
) -> Html:
    """Return a table that scrolls inside its own box if it is wider than the page.

    Args:
        caption: what it shows; screen readers announce it.
        columns: the columns; the first one names the row.
        rows: the cells.
        style: class of the table; "sortable": with buttons to sort and a search box, once scripts run.
        tall: identifier of a table that scrolls down too, for its search box; "": it does not.
    """
    head = "".join(f'<th scope="col" class="{one.kind}"{_title(one.about)}>{escape(one.title)}</th>' for one in columns)
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
    style = f"{cell.kind} {cell.style}".strip()
    shade = "" if cell.shade is None else f' style="--part:{cell.shade:.2f}"'
    return f'<{tag}{scope} class="{style}"{sort}{shade}>{cell.html}</{tag}>'


def _title(about: str) -> Html:
    return f' title="{escape(about)}"' if about else ""


def section(identifier: str, title: str, *parts: Html) -> Html:
    """Return a section of the page.

    Args:
        identifier: target of links to it.
        title: its heading.
        *parts: its content; empty parts are left out.
    """
    body = "\n".join(part for part in parts if part)
    return (
        f'<section id="{identifier}" aria-labelledby="{identifier}-title">\n'
        f'<h2 id="{identifier}-title">{escape(title)}</h2>\n{body}\n</section>'
    )


def paragraph(html: Html, style: str = "") -> Html:
    """Return a paragraph."""
    return f'<p class="{style}">{html}</p>' if style else f"<p>{html}</p>"


def figure(svg: Html, caption: str) -> Html:
    """Return a chart with its caption."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def side_by_side(*figures: Html) -> Html:
    """Return figures next to each other, or below each other on a small screen."""
    return f'<div class="figures">{"".join(figures)}</div>'
