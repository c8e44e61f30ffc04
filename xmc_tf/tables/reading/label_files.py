"""Write predicted labels to CSV and TSV files that are safe to open in spreadsheets, or to JSON lines."""

import csv
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from xmc_tf.common.csv_cells import safe_cell
from xmc_tf.common.errors import InputError
from xmc_tf.store.files import atomic_file
from xmc_tf.tables.reading.delimited import DelimitedFile
from xmc_tf.tables.reading.nested import Flattened
from xmc_tf.tables.reading.records import TableReader

KINDS = (".csv", ".tsv", ".jsonl")

Labels = Sequence[tuple[str, float]]


class LabelFile:
    """A file with the best labels of each row of a table, written atomically. A CSV has the dialect of ``source``."""

    def __init__(self, path: Path, kept: Sequence[str], most: int, source: TableReader | None = None) -> None:
        if path.suffix.lower() not in KINDS:
            raise InputError(
                f"-o {path} has an unknown extension", expected=f"a file with one of the extensions {', '.join(KINDS)}"
            )
        self.path, self._kept, self._most = path, list(kept), most
        self._separator, self._encoding = "\t" if path.suffix.lower() == ".tsv" else ",", "utf-8"
        source = source.source if isinstance(source, Flattened) else source
        if isinstance(source, DelimitedFile) and path.suffix.lower() == ".csv":
            self._separator = ";" if source.separator == ";" else ","
            self._encoding = "utf-8-sig" if source.separator == ";" or source.encoding == "utf-8-sig" else "utf-8"
        self._placing = ExitStack()

    def __enter__(self) -> Self:
        part = self._placing.enter_context(atomic_file(self.path))
        file = part.open("w", encoding=self._encoding, errors="replace", newline="")
        self._file = self._placing.enter_context(file)
        self._csv: Any = None
        if self.path.suffix.lower() != ".jsonl":
            self._csv = csv.writer(self._file, delimiter=self._separator)
            ranked = [f"{what} {rank}" for rank in range(1, self._most + 1) for what in ("label", "score")]
            self._csv.writerow(["line", *map(self._safe, self._kept), *ranked])
        return self

    def write(self, line: int, cells: Sequence[Any], labels: Labels) -> None:
        """Write the result for one line of the table: the cells to keep, and the labels with scores, best first."""
        if self._csv is None:
            content: dict[str, Any] = {"line": line}
            content |= {name: value for name, value in zip(self._kept, cells, strict=True) if name not in content}
            content |= {"labels": [name for name, _ in labels], "scores": [round(score, 6) for _, score in labels]}
            self._file.write(json.dumps(content, ensure_ascii=False, default=str) + "\n")
            return
        found = [cell for name, score in labels for cell in (self._safe(name), f"{score:.6g}")]
        empty = [""] * (2 * (self._most - len(labels)))
        self._csv.writerow([line, *map(self._safe, cells), *found, *empty])

    def _safe(self, cell: Any) -> str:
        return safe_cell(cell, self._separator)

    def __exit__(self, *error: Any) -> None:
        self._placing.__exit__(*error)
