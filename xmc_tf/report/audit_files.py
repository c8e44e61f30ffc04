"""Write the files of an audit: a CSV table for marking corrections, and an HTML page for reading."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from xmc_tf.audit import KINDS, Audit, Finding
from xmc_tf.audit.corrections import HEADER
from xmc_tf.audit.data import DUPLICATES, MISSING, NOUNS, SAME_LABELS, SILENT_NAME, WRONG
from xmc_tf.report.page.elements import Cell, Table, clean, name
from xmc_tf.report.page.page import GENERATOR, render
from xmc_tf.report.writing import write_csv
from xmc_tf.store.files import atomic_files

FINDINGS, PAGE = "findings.csv", "audit.html"
AUDIT_FILES = {FINDINGS: ",".join(HEADER[:-2]), PAGE: GENERATOR}  # with a text by which each is recognised
_CSV_TEXT, _PAGE_TEXT = 200, 160  # characters
_SHOWN = 200
_HINTS = {
    "strength": "Strength of the evidence; it orders findings and is not the probability that they are right",
    "gain": "The strength times the number of labels of documents that would change",
}
_OF_LABEL = ("document", "label", "text", "why")
_TEXTS = {
    MISSING: _OF_LABEL, WRONG: _OF_LABEL, DUPLICATES: ("document", "text", "why"),
    SAME_LABELS: ("label", "other label", "why"), SILENT_NAME: ("label", "why"),
}  # fmt: skip


def write_audit(
    audit: Audit, folder: str | Path, title: str = "Audit of the labels", ids: Mapping[str, str] | None = None
) -> Path:
    """Write the findings of an audit: ``findings.csv`` for marking corrections, and ``audit.html`` for reading.

    Example:
        >>> model = load("model")
        >>> path = write_audit(model.audit(TextFile("X.trn.txt"), load_matrix("Y.trn.npz")), "audit")

    Args:
        audit: the findings.
        folder: output folder. It is created if it does not exist; other files in it are kept.
        title: title of the page.
        ids: identifiers of the labels, by label name (default: label numbers).

    Returns:
        The path of the page.
    """
    folder = Path(folder)
    with atomic_files(folder / PAGE, folder / FINDINGS) as (page, findings):
        write_csv(findings, HEADER, _rows(audit, ids or {}))
        tables = {kind: _table(audit, kind) for kind in KINDS if audit.of_kind(kind)}
        content = {"audit": audit, "kinds": KINDS, "nouns": NOUNS, "tables": tables, "file": FINDINGS}
        html = render("audit.html", title, str(audit), FINDINGS, **content)
        page.write_text(html, encoding="utf-8", errors="replace")
    return folder / PAGE


def _rows(audit: Audit, ids: Mapping[str, str]) -> Iterable[list[object]]:
    data = audit.data
    for one in audit:
        label = "" if one.label is None else data.label_name(one.label)
        document = "" if one.row is None else data.document_name(one.row)
        other = None
        if one.other is not None:
            other = data.label_name(one.other) if one.row is None else data.document_name(one.other)
        identifier = "" if one.label is None else ids.get(label, str(one.label))
        values: dict[str, object] = {
            "accept": "", "kind": one.kind, "row": one.row, "document": document, "label": label,
            "label_id": identifier, "text": audit.text_of(one)[:_CSV_TEXT], "other": other, "why": one.why,
            "strength": f"{one.strength:.3f}", "gain": f"{one.gain:.3f}",
        }  # fmt: skip
        yield [values[column] for column in HEADER]


def _table(audit: Audit, kind: str) -> Table:
    numbers = ["strength"] if kind in (MISSING, WRONG) else ["strength", "gain"]  # of a single label, both are the same
    title, identifier = NOUNS[kind][1].capitalize(), f"{kind.replace(' ', '')}-table"
    rows = [_cells(audit, one, numbers) for one in audit.of_kind(kind)[:_SHOWN]]
    return Table(
        f"{title}, largest gain first", [*_TEXTS[kind], *numbers], rows, "sortable findings", identifier, _HINTS
    )


def _cells(audit: Audit, one: Finding, numbers: Iterable[str]) -> list[Cell]:
    data = audit.data
    cells = {
        "document": "" if one.row is None else name(data.document_name(one.row)),
        "label": "" if one.label is None else name(data.label_name(one.label)),
        "other label": "" if one.other is None or one.row is not None else name(data.label_name(one.other)),
        "text": clean(audit.text_of(one), _PAGE_TEXT), "why": clean(one.why, 500),
    }  # fmt: skip
    texts = [Cell(cells[title], kind="text", style=title.split()[-1]) for title in _TEXTS[one.kind]]
    return texts + [Cell(f"{getattr(one, what):.2f}", getattr(one, what), style=what) for what in numbers]
