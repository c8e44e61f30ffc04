"""Options for reading a table, in a module of their own so that commands start without loading the readers."""

from dataclasses import dataclass
from pathlib import Path

KINDS = (
    "csv", "tsv", "jsonl", "parquet", "sqlite", "annif-tsv", "annif-folder", "fasttext", "lines", "sparse-features",
    "pecos-lines", "pecos-folder",
)  # fmt: skip


@dataclass(frozen=True)
class SourceOptions:
    """Options for reading a table. None means that the value is detected from the file.

    Args:
        kind: format of the table, one of ``KINDS``.
        encoding: encoding of text files.
        separator: separator of the cells in CSV and TSV files.
        header: whether the first row of a CSV or TSV file holds the column names.
        table: name of the table in an SQLite database.
        label_lists: file with the labels of each text, line by line. The table is then a file with one text per line.
    """

    kind: str | None = None
    encoding: str | None = None
    separator: str | None = None
    header: bool | None = None
    table: str | None = None
    label_lists: str | Path | None = None
