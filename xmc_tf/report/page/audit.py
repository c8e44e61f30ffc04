from collections.abc import Sequence

from xmc_tf.audit import KINDS, Audit, Finding
from xmc_tf.audit.finding import DUPLICATES, MISSING, SAME_LABELS, SILENT_NAME, WRONG
from xmc_tf.report.page.elements import Cell, Column, Html, name, paragraph, section, table, text
from xmc_tf.report.page.page import whole_page

_SHOWN = 200
_TEXT = 160
_SURE = Column("sure", about="How likely the finding is right")
_GAIN = Column("gain", about="Number of labels of documents that are expected to become right")
_OF_LABEL = ("document", "label", "text", "why")
_TEXTS = {
    MISSING: _OF_LABEL, WRONG: _OF_LABEL, DUPLICATES: ("document", "text", "why"),
    SAME_LABELS: ("label", "other label", "why"), SILENT_NAME: ("label", "why"),
}  # fmt: skip


def audit_page(audit: Audit, title: str, file: str) -> Html:
    """Return the findings as one HTML page; ``file`` is the name of the CSV file beside it."""
    parts = [_summary(audit, file), *(_findings(audit, kind, file) for kind in KINDS)]
    return whole_page(title, text(str(audit)), "\n".join(filter(None, parts)), file)


def _summary(audit: Audit, file: str) -> Html:
    lines = [
        f"<li>{text(kind)}: {audit.count_text(len(audit.of_kind(kind)))}. {text(about)}</li>"
        for kind, about in KINDS.items()
    ]  # fmt: skip
    return section(
        "summary",
        "Summary",
        paragraph("Each document was checked by rankers that were trained without it."),
        f"<ul>{''.join(lines)}</ul>",
        paragraph(
            f"To accept corrections, write yes in the column accept of {text(file)}, for findings of the kinds missing "
            f"and wrong, and run: <code>xmc-tf append TABLE -m MODEL --accepted {text(file)}</code>"
        ),
    )


def _findings(audit: Audit, kind: str, file: str) -> Html:
    found = audit.of_kind(kind)
    if not found:
        return ""
    rows = [_row(audit, one) for one in found[:_SHOWN]]
    about = f"{KINDS[kind]} The table shows {len(rows):,} of {len(found):,}; {file} has all of them."
    caption = f"Findings of the kind {kind}, those with the largest gain first"
    numbers = [_SURE] if kind in (MISSING, WRONG) else [_SURE, _GAIN]  # of a single label, both are the same
    columns = [*(Column(title, "text") for title in _TEXTS[kind]), *numbers]
    identifier = kind.replace(" ", "")
    html = table(caption, columns, rows, style="sortable findings", tall=f"{identifier}-table")
    return section(identifier, kind.capitalize(), paragraph(text(about, 300), "note"), html)


def _row(audit: Audit, one: Finding) -> Sequence[Cell]:
    data = audit.data
    cells = {
        "document": "" if one.row is None else name(data.document_name(one.row)),
        "label": "" if one.label is None else name(data.label_name(one.label)),
        "other label": "" if one.other is None or one.row is not None else name(data.label_name(one.other)),
        "text": text(audit.text_of(one), _TEXT), "why": text(one.why, 500),
    }  # fmt: skip
    texts = [Cell(cells[title], kind="text", style=title.split()[-1]) for title in _TEXTS[one.kind]]
    sure, gain = (Cell(f"{getattr(one, what):.2f}", getattr(one, what), style=what) for what in ("sure", "gain"))
    return [*texts, sure] if one.kind in (MISSING, WRONG) else [*texts, sure, gain]
