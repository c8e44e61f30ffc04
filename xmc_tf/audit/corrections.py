"""Turn the accepted findings of an audit into corrections of labels."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xmc_tf.audit.data import MISSING, WRONG
from xmc_tf.common.csv_cells import raw_cell, safe_cell
from xmc_tf.common.errors import InputError
from xmc_tf.tables.label_cells import are_whole_floats, as_whole

ACCEPT = "accept"
HEADER = (ACCEPT, "kind", "row", "document", "text", "label", "label_id", "other", "why", "strength", "gain")
"""The columns of the table of findings."""
_YES = ("yes", "y", "x", "1", "true")
_NO = ("", "no", "n", "0", "false")


@dataclass(frozen=True)
class Correction:
    """A label to add to a document, or to remove from it."""

    row: int  # of the document, from 0
    label: str
    add: bool  # whether the label is added; else it is removed
    text: str  # the beginning of the document's text
    line: int  # of the finding in the table
    why: str = ""


def read_accepted(path: str | Path, *, every: bool = False) -> list[Correction]:
    """Return the corrections that a person accepted by writing yes in the column ``accept`` of ``findings.csv``.

    With ``every``, return all corrections that the table proposes.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            sample = file.readline()
            file.seek(0)
            # In many countries, spreadsheet programs write semicolons.
            separator = max(",;\t", key=sample.count)
            reader = csv.DictReader(file, delimiter=separator)
            rows = [(reader.line_num, row) for row in reader]
            columns = reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}", expected="findings.csv of xmc-tf audit") from None
    if missing := [name for name in (ACCEPT, "kind", "row", "text", "label") if name not in columns]:
        raise InputError(
            f"{path} has no column {missing[0]!r}", expected="findings.csv of xmc-tf audit, with all its columns",
            received=", ".join(map(str, columns))[:200],
        )  # fmt: skip
    # pandas writes a column of whole numbers with empty cells as 1379.0.
    if are_whole_floats(row["label"] for _, row in rows if row["label"]):
        rows = [(line, {**row, "label": as_whole(row["label"] or "")}) for line, row in rows]
    return [one for line, row in rows if (one := _correction(path, line, row, every)) is not None]


def _correction(path: Path, line: int, row: dict[str, str | None], every: bool) -> Correction | None:
    answer = as_whole((row[ACCEPT] or "").strip().lower())
    if every:
        answer = _YES[0] if row["kind"] in (MISSING, WRONG) else ""
    if answer in _NO:
        return None
    if answer not in _YES:
        raise InputError(
            f"{path}, line {line}: accept is {answer[:40]!r}",
            expected="yes, or nothing",
            fix="write yes or leave it empty",
        )
    kind, number = row["kind"], as_whole(row["row"] or "")
    if kind not in (MISSING, WRONG):
        raise InputError(
            f"{path}, line {line}: a finding of kind {str(kind)[:40]!r} does not name a label to add or remove",
            expected=f"kinds {MISSING} and {WRONG}",
            fix="leave accept empty; merge labels with xmc-tf labels merge",
        )
    if not number.isascii() or not number.isdecimal() or not row["label"]:
        raise InputError(f"{path}, line {line}: no valid row or label", expected="the line as xmc-tf audit wrote it")
    return Correction(int(number), row["label"], kind == MISSING, row["text"] or "", line, row.get("why") or "")


def check_texts(corrections: Sequence[Correction], texts: Sequence[str], path: str | Path) -> None:
    """Raise an error if a correction is about another text than the one in its row. Each text must be on one line."""
    for one in corrections:
        text = texts[one.row] if one.row < len(texts) else ""
        same = safe_cell(text[: len(raw_cell(one.text))]) == one.text or safe_cell(text).startswith(one.text)
        if one.row >= len(texts) or not same or (text and not one.text):  # "" would fit every document
            raise InputError(
                f"{path}, line {one.line}: document {one.row:,} is missing from this table or has a different text",
                expected="the table that was audited, read with the same options", received=repr(one.text)[:60],
            )  # fmt: skip


def corrected_documents(
    corrections: Sequence[Correction], texts: Sequence[str], labels: Sequence[Sequence[str]], path: str | Path
) -> tuple[list[int], list[list[str]]]:
    """Return the rows of the documents that change, and their corrected labels. Each text must be on one line."""
    check_texts(corrections, texts, path)
    changed: dict[int, list[str]] = {}
    for one in corrections:
        own = changed.setdefault(one.row, list(labels[one.row]))
        names = {safe_cell(name): name for name in own}
        if one.add and one.label not in names:
            own.append(raw_cell(one.label))
        elif not one.add and one.label in names:
            own.remove(names[one.label])
    rows = sorted(changed)
    return rows, [changed[row] for row in rows]
