"""The files of an audit: a CSV table to work through, and a page to read."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from xmc_tf.audit import Audit
from xmc_tf.audit.corrections import ACCEPT, HEADER
from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.common.files.outputs import Named, refuse_output, refuse_output_folder
from xmc_tf.report.page.audit import audit_page
from xmc_tf.report.page.page import GENERATOR
from xmc_tf.report.writing import write_csv

FINDINGS, PAGE = "findings.csv", "audit.html"
_TEXT = 200  # characters


def refuse_audit(flag: str, folder: str | Path, inputs: Mapping[str, Named], *, force: bool = False) -> None:
    """Refuse an output folder that is an input, or in which a file of others would be replaced without ``force``."""
    refuse_output_folder(flag, folder, inputs)
    for name, mark in ((FINDINGS, ",".join(HEADER)), (PAGE, GENERATOR)):
        refuse_output(flag, Path(folder) / name, inputs, [mark], force=force)


def write_audit(
    audit: Audit, folder: str | Path, title: str = "Audit of the labels", ids: Mapping[str, str] | None = None
) -> Path:
    """Write the findings of an audit as ``findings.csv``, to work through, and ``audit.html``, to read.

    Example:
        >>> model = load("model")
        >>> path = write_audit(model.audit(TextFile("X.trn.txt"), load_matrix("Y.trn.npz")), "audit")

    Args:
        audit: the findings.
        folder: created if it does not exist; other files in it are kept.
        title: title of the page.
        ids: identifiers of the labels by name.

    Returns:
        The path of the page.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / FINDINGS, HEADER, _rows(audit, ids or {}))
    with atomic_file(folder / PAGE) as part:
        part.write_text(audit_page(audit, title, FINDINGS), encoding="utf-8", errors="replace")
    return folder / PAGE


def _rows(audit: Audit, ids: Mapping[str, str]) -> Iterable[list[object]]:
    data = audit.data
    for one in audit:
        name = "" if one.label is None else data.label_name(one.label)
        document = "" if one.row is None else data.document_name(one.row)
        other = None
        if one.other is not None:
            other = data.label_name(one.other) if one.row is None else data.document_name(one.other)
        text = audit.text_of(one)[:_TEXT]
        identifier = "" if one.label is None else ids.get(name, str(one.label))
        values = [
            "", one.kind, one.row, document, text, name, identifier, other, one.why, f"{one.sure:.3f}",
            f"{one.gain:.3f}",
        ]  # fmt: skip
        yield [dict(zip(HEADER, values, strict=True))[column] for column in HEADER]


__all__ = ["ACCEPT", "FINDINGS", "PAGE", "refuse_audit", "write_audit"]
