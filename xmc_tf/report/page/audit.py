"""The page of an audit: a section for each kind of findings."""

from collections.abc import Sequence

from xmc_tf.audit import KINDS, Audit, Finding
from xmc_tf.report.page.elements import Cell, Column, Html, name, paragraph, section, table, text
from xmc_tf.report.page.page import whole_page

_SHOWN = 200
_TEXT = 160
_COLUMNS = [
    Column("document or label", "text"), Column("label", "text"), Column("text", "text"), Column("why", "text"),
    Column("sure", about="How likely the finding is right"),
    Column("gain", about="Number of labels of documents that are expected to become right"),
]  # fmt: skip


def audit_page(audit: Audit, title: str, file: str) -> Html:
    """Return the findings as one HTML page.

    Args:
        audit: the findings.
        title: title of the page.
        file: name of the file of the findings beside the page.
    """
    parts = [_summary(audit, file), *(_findings(audit, kind, file) for kind in KINDS)]
    return whole_page(title, text(str(audit)), "\n".join(filter(None, parts)), file)


def _summary(audit: Audit, file: str) -> Html:
    lines = [
        f"<li>{text(kind)}: {len(audit.of_kind(kind)):,}. {text(about)}</li>"
        for kind, about in KINDS.items()
    ]  # fmt: skip
    return section(
        "summary",
        "Summary",
        paragraph("Each document was looked at by rankers that were trained without it."),
        f"<ul>{''.join(lines)}</ul>",
        paragraph(
            f"To accept corrections, write yes in the column accept of {text(file)}, for findings of the kinds missing "
            "and wrong, and run: xmc-tf append TABLE -m MODEL --accepted " + text(file)
        ),
    )


def _findings(audit: Audit, kind: str, file: str) -> Html:
    found = audit.of_kind(kind)
    if not found:
        return ""
    rows = [_row(audit, one) for one in found[:_SHOWN]]
    about = f"{KINDS[kind]} The table shows {len(rows):,} of {len(found):,}; {file} has all of them."
    caption = f"Findings of the kind {kind}, those with the largest gain first"
    html = table(caption, _COLUMNS, rows, style="sortable")
    identifier = kind.replace(" ", "")
    html = html.replace('class="scroll"', 'class="scroll tall"', 1).replace(
        "<table ", f'<table id="{identifier}-table" ', 1
    )
    return section(identifier, kind.capitalize(), paragraph(text(about, 300), "note"), html)


def _row(audit: Audit, one: Finding) -> Sequence[Cell]:
    data = audit.data
    label = "" if one.label is None else data.label_name(one.label)
    if one.row is None:
        head = name(label)
        label = "" if one.other is None else data.label_name(one.other)
    else:
        head = name(data.document_name(one.row))
    return [
        Cell(head, kind="text"), Cell(name(label), kind="text"), Cell(text(audit.text_of(one), _TEXT), kind="text"),
        Cell(text(one.why, 500), kind="text"), Cell(f"{one.sure:.2f}", one.sure), Cell(f"{one.gain:.2f}", one.gain),
    ]  # fmt: skip
