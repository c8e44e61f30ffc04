"""Detection of tables (CSV, TSV) given as texts."""

import csv
import logging
from pathlib import Path

from xmc_tf.common.errors import InputError

_LOG = logging.getLogger(__name__)
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_LINES = 20
_OF_TEXTS = {"text", "texts", "title", "titles", "abstract", "body", "content", "description", "document", "sentence"}
_OF_OTHERS = {"id", "uid", "doc_id", "label", "labels", "tag", "tags", "category", "categories", "class", "keywords"}


def refuse_table(path: Path, head: bytes, name: str) -> None:
    """Raise an ``InputError`` if a text file is clearly a table, by its column names, or by its name and separators."""
    # The text after the last line end may be an incomplete line.
    whole = head[: head.rfind(b"\n") + 1] or head
    lines = whole.decode("utf-8-sig", errors="replace").splitlines()[:_LINES]
    if not lines:
        return
    named = path.suffix.lower() in (".csv", ".tsv")
    for separator, called in _SEPARATORS.items():
        rows = list(csv.reader(lines, delimiter=separator))
        columns = [column.strip().lower() for column in rows[0]] if rows else []
        if len(columns) < 2:
            continue
        usual = [not known.isdisjoint(columns) for known in (_OF_TEXTS, _OF_OTHERS)]
        is_header = all(len(column) <= 30 for column in columns) and (all(usual) or (named and any(usual)))
        is_even = len(rows) > 1 and len({len(row) for row in rows}) == 1
        if is_header or (named and is_even):
            raise InputError(
                f"{name}: {path} is a table, not a file of texts",
                expected="one document per line only, and labels in a separate matrix",
                received=f"{len(columns)} columns separated by {called}, the first line: {lines[0][:80]!r}",
                fix=f"train on the table (xmc-tf train {path} -m MODEL), or write its column of texts to a file",
            )
    if named:
        _LOG.warning("%s: %s is read as text, one document per line, despite its name", name, path)
