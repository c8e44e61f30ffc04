"""Options for reading a table; apart from the readers, so that commands start without loading them."""

from dataclasses import dataclass
from pathlib import Path

KINDS = (
    "csv", "tsv", "jsonl", "parquet", "sqlite", "annif-tsv", "annif-folder", "fasttext", "lines", "sparse-features",
    "pecos-lines", "pecos-folder",
)  # fmt: skip


@dataclass(frozen=True)
class SourceOptions:
    """Options for reading a table; None: detected from the file.

    Args:
        kind: one of ``KINDS``.
        encoding: encoding of text files.
        separator: between the cells of CSV and TSV.
        header: whether the first row of CSV and TSV holds the column names.
        table: name of the table in an SQLite database.
        label_lists: file with the labels of each text, line by line; the table is then a file of texts, one per line.
    """

    kind: str | None = None
    encoding: str | None = None
    separator: str | None = None
    header: bool | None = None
    table: str | None = None
    label_lists: str | Path | None = None
