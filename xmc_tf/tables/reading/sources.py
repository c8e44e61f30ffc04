"""Open tables in any format, which is detected from the content and then from the file name."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import existing_file
from xmc_tf.data.in_memory import as_columns, is_frame
from xmc_tf.tables.reading.delimited import SEPARATORS, DelimitedFile
from xmc_tf.tables.reading.folders import AnnifFolder, PecosFolder
from xmc_tf.tables.reading.line_formats import (
    AnnifTsv,
    FastTextLines,
    PecosLines,
    SparseFeatures,
    TextLines,
    TextsAndLabelLists,
)
from xmc_tf.tables.reading.nested import flattened
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.records import TableReader
from xmc_tf.tables.reading.structured import Frame, JsonLines, ParquetFile, SqliteTable
from xmc_tf.tables.reading.text_files import HEAD, first_lines, packing, unpacked_name

_SUFFIXES = {
    ".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".pq": "parquet", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite",
}  # fmt: skip
# Excel's old files, bzip2, xz, 7z, Zstandard, RAR, an empty zip archive, and tar.
_NO_TABLES = re.compile(
    rb"\xd0\xcf\x11\xe0|BZh\d1AY&SY|\xfd7zXZ|7z\xbc\xaf|\x28\xb5\x2f\xfd|Rar!\x1a|PK\x05\x06|.{257}ustar", re.DOTALL
)
_Open = Callable[..., TableReader]
_LINES: dict[str, _Open] = {
    "annif-tsv": AnnifTsv, "pecos-lines": PecosLines, "fasttext": FastTextLines, "lines": TextLines,
}  # fmt: skip
_NO_TEXT_FILES: dict[str, _Open] = {
    "sparse-features": SparseFeatures,
    "pecos-folder": PecosFolder,
    "annif-folder": AnnifFolder,
}
_NAMES = {"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "bar": "|", "pipe": "|"}


def open_source(table: Any, options: SourceOptions | None = None) -> TableReader:
    """Open a table: the path of a file or folder, a DataFrame, or a list of dictionaries."""
    options, table = options or SourceOptions(), as_columns(table)
    if options.label_lists is not None:
        if is_frame(table) or options.kind is not None:
            problem = "--label-lists needs a file of texts"
            raise InputError(problem, expected="one text per line", fix="pass the path of a file, without --format")
        return TextsAndLabelLists(Path(table), options.label_lists, encoding=options.encoding)
    if is_frame(table):
        return flattened(Frame(table))
    path = Path(table)
    if path.is_dir():
        kind = "pecos-folder" if PecosFolder.matches(path) else "annif-folder"
    else:
        existing_file(path, "table")
        kind = options.kind or _kind(path)
    delimited = kind in ("csv", "tsv")
    problems = {
        "--table": options.table is not None and kind != "sqlite",
        "--separator": options.separator is not None and not delimited,
        "--header": options.header is not None and not delimited,
        "--encoding": options.encoding is not None and kind in ("parquet", "sqlite", *_NO_TEXT_FILES),
        f"--format {options.kind}": options.kind not in (None, kind),  # of a folder
    }
    if wrong := [flag for flag, found in problems.items() if found]:
        raise InputError(
            f"{', '.join(wrong)} cannot be used with {path}",
            expected="an SQLite database" if wrong[0] == "--table" else "a text file, such as CSV",
            received=f"a table in the format {kind}",
            fix="leave it out, or set another --format",
        )
    if kind == "parquet":
        return flattened(ParquetFile(path))
    if kind == "sqlite":
        return flattened(SqliteTable(path, options.table))
    if kind == "jsonl":
        return flattened(JsonLines(path, encoding=options.encoding))
    if kind in _LINES:
        return _LINES[kind](path, encoding=options.encoding)
    if kind in _NO_TEXT_FILES:
        return _NO_TEXT_FILES[kind](path)
    separator = "\t" if options.kind == "tsv" else None
    if options.separator is not None:
        separator = _NAMES.get(options.separator.lower(), options.separator)
        if len(separator) != 1 or separator in '"\r\n':
            expected = f"one character, such as {' '.join(map(repr, SEPARATORS))}, or tab"
            raise InputError(f"unknown separator {options.separator!r}", expected=expected, fix="change --separator")
    return flattened(DelimitedFile(path, encoding=options.encoding, separator=separator, header=options.header))


def _kind(path: Path) -> str:
    head, lines = first_lines(path)
    packed = packing(path)
    if packed and head.startswith((b"PAR1", b"SQLite format 3\x00")):
        raise InputError(
            f"{path} is compressed by {packed}", expected="Parquet or SQLite files as they are", fix="unpack it"
        )
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"SQLite format 3\x00"):
        return "sqlite"
    if not head.strip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n") and len(head) < HEAD:
        raise InputError(f"{path} is empty", expected="a table with columns of texts and labels")
    if lines and SparseFeatures.matches(lines):
        return "sparse-features"
    if _NO_TABLES.match(head):
        raise InputError(
            f"{path} is an Excel file or another archive", expected="a text file, which gzip or zip may have packed",
            fix="unpack it, or save it as CSV in UTF-8",
        )  # fmt: skip
    if packed and AnnifTsv.matches(lines):
        return "annif-tsv"
    if re.match(rb"[\xef\xbb\xbf\s]*(\{|\[\s*\{)", b"".join(lines)):
        return "jsonl"
    if PecosLines.matches(lines):
        return "pecos-lines"
    if FastTextLines.matches(lines):
        return "fasttext"
    kind = _SUFFIXES.get(Path(unpacked_name(path)).suffix.lower(), "csv")
    return "annif-tsv" if kind in ("csv", "tsv") and AnnifTsv.matches(lines) else kind
