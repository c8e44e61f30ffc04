"""Files of texts, one per line, with or without a file of label lists."""

import io
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import IO

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.regular import existing_file
from xmc_tf.tables.reading.encodings import named, text_encoding
from xmc_tf.tables.reading.packed import is_packed, opened, unpacked_size
from xmc_tf.tables.reading.records import TableReader, TableRow


class TextsAndLabelLists(TableReader):
    """Texts and their labels in two files, line by line."""

    unit = "documents"

    def __init__(self, path: Path, labels: str | Path, *, encoding: str | None = None) -> None:
        self.path, self.labels, self.name = path, Path(labels), str(path)
        self.columns = ["text", "label"]
        existing_file(self.path, "texts")
        existing_file(self.labels, "label lists")
        self._encodings = [_encoding(one, encoding) for one in (self.path, self.labels)]
        self.kind = f"texts in {named(self._encodings[0])} with label lists in {self.labels.name}"
        self.size = self._count()

    def records(self) -> Iterator[TableRow]:
        with _lines(self.path, self._encodings[0]) as texts, _lines(self.labels, self._encodings[1]) as labels:
            for number, (text, found) in enumerate(zip(texts, labels, strict=True), 1):
                self.read = number
                yield TableRow(number, [text.rstrip("\r\n"), found.strip()])

    def _count(self) -> int:
        """Return the number of lines, which both files must have."""
        counts = [0, 0]
        with _lines(self.path, self._encodings[0]) as texts, _lines(self.labels, self._encodings[1]) as labels:
            for pair in zip_longest(texts, labels):
                counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if counts[0] != counts[1]:
            raise InputError(
                f"{self.labels} does not fit {self.path}", expected=f"{counts[0]:,} lines, one per text",
                received=f"{counts[1]:,}", fix="line 7 of --label-lists must hold the labels of line 7 of the texts",
            )  # fmt: skip
        return counts[0]


def _encoding(path: Path, given: str | None) -> str:
    return "utf-8-sig" if is_packed(path) else text_encoding(path, given)


def _lines(path: Path, encoding: str) -> IO[str]:
    return io.TextIOWrapper(opened(path), encoding=encoding, errors="replace", newline="\n")


class TextLines(TableReader):
    """A file of texts, one per line, without labels."""

    unit = "MB"

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.columns = path, str(path), ["text"]
        self._encoding = _encoding(path, None)
        self.kind = f"texts in {named(self._encoding)}, one per line"
        self.size = max(unpacked_size(path) >> 20, 1)

    def records(self) -> Iterator[TableRow]:
        with _lines(self.path, self._encoding) as texts:
            for number, text in enumerate(texts, 1):
                self.read += len(text)
                yield TableRow(number, [text.rstrip("\r\n")])
