"""Read files with one document per line, in formats of Annif, fastText, PECOS and the XMC repository."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import existing_file
from xmc_tf.tables.label_cells import FASTTEXT
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow
from xmc_tf.tables.reading.text_files import lines_of, named, opened, opened_text, text_encoding, unpacked_size

_SUBJECT = re.compile(r"<([^<>\s]+)>")
_HEADER = re.compile(rb"\s*(\d+)\s+(\d+)\s+(\d+)\s*")
_PECOS_LINE = re.compile(rb"\d+(,\d+)*\t\S")
_BOM = b"\xef\xbb\xbf"


class _LineReader(TableReader):
    """A text file with one document per line, which may be gzipped."""

    form = ""  # of the lines
    unit = "MB"

    def __init__(self, path: Path, *, encoding: str | None = None) -> None:
        self.path, self.name, self.files = path, str(path), (path,)
        self.encoding = text_encoding(path, encoding)
        own = named(self.encoding)
        self.kind = self.form if own == "UTF-8" else f"{self.form} in {own}"
        self.size = max(unpacked_size(path) >> 20, 1)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number (from 1) and the text of each line."""
        self.read = 0
        with opened_text(self.path, self.encoding, newline="\n") as file:
            for number, line in enumerate(lines_of(file, self.path), 1):
                self.read += len(line)
                yield number, line.rstrip("\r\n")


class AnnifTsv(_LineReader):
    """Annif's short-text corpus, which may be gzipped: lines of ``text<TAB><uri> <uri>``."""

    form = "Annif's TSV"
    columns = ("text", "labels")

    def records(self) -> Iterator[TableRow | BadRow]:
        for number, line in self.lines():
            text, tab, subjects = line.rpartition("\t")
            found = _SUBJECT.findall(subjects)
            if tab and found:
                yield TableRow(number, [text, found])
            elif line.strip():
                yield BadRow(number, "no subjects after a tab" if tab else "no tab", line[:80])

    @staticmethod
    def matches(lines: Sequence[bytes]) -> bool:
        """Return whether the first lines of a file have this format."""
        texts = [line.decode("utf-8", errors="replace") for line in lines if line.strip()]
        found = [bool(_SUBJECT.search(text.rpartition("\t")[2])) and "\t" in text for text in texts]
        return bool(found) and sum(found) >= 0.9 * len(found)


class FastTextLines(_LineReader):
    """fastText's format: lines with a text and its labels, which have the prefix ``__label__``."""

    form = "fastText's lines of labels and text"
    columns = ("labels", "text")

    def records(self) -> Iterator[TableRow | BadRow]:
        for number, line in self.lines():
            if words := line.split():
                labels = [word.removeprefix(FASTTEXT) for word in words if word.startswith(FASTTEXT)]
                yield TableRow(number, [labels, " ".join(word for word in words if not word.startswith(FASTTEXT))])

    @staticmethod
    def matches(lines: Sequence[bytes]) -> bool:
        words = [line.removeprefix(_BOM).split() for line in lines if line.strip()]
        found = [line[0].startswith(FASTTEXT.encode()) and b"," not in line[0] for line in words]
        return bool(found) and sum(found) >= 0.9 * len(found)


class PecosLines(_LineReader):
    """PECOS's format: lines with label numbers and a text, such as ``1,2<TAB>text``."""

    form = "PECOS's lines of labels and text"
    columns = ("labels", "text")

    def records(self) -> Iterator[TableRow | BadRow]:
        for number, line in self.lines():
            labels, tab, text = line.partition("\t")
            if tab:
                yield TableRow(number, [[one.strip() for one in labels.split(",")], text])
            elif labels.strip():
                yield BadRow(number, "no tab", labels[:80])

    @staticmethod
    def matches(lines: Sequence[bytes]) -> bool:
        lines = [line for line in lines if line.strip()]
        return bool(lines) and all(_PECOS_LINE.match(line.removeprefix(_BOM)) for line in lines)


class SparseFeatures(TableReader):
    """The format of the Extreme Classification Repository.

    The first line is ``documents features labels``; the others are like ``1,2 7:0.5 9:1.2``.
    """

    kind = "sparse features of the Extreme Classification Repository"
    unit = "documents"
    columns = ("features", "labels")

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.files = path, str(path), (path,)
        with opened(path) as file:
            found = _HEADER.fullmatch(file.readline())
        if found is None:
            raise InputError(f"{path} has no header", expected="numbers of documents, features and labels on line 1")
        self.size, self.nr_features, self.nr_labels = map(int, found.groups())

    def records(self) -> Iterator[TableRow | BadRow]:
        """Yield ((feature numbers, values), label numbers) for each document."""
        with opened(self.path) as file:
            file.readline()
            for number, line in enumerate(lines_of(file, self.path), 2):
                self.read = number - 1
                try:
                    yield TableRow(number, [*self._parsed(line)])
                except (ValueError, OverflowError) as error:
                    reason = str(error) if "out of range" in str(error) else "not labels and features"
                    yield BadRow(number, reason, line[:80].decode("utf-8", "replace"))

    @staticmethod
    def matches(lines: Sequence[bytes]) -> bool:
        return _HEADER.fullmatch(lines[0]) is not None and (len(lines) == 1 or b":" in lines[1])

    def _parsed(self, line: bytes) -> tuple[tuple[np.ndarray, np.ndarray], list[str]]:
        first, *pairs = line.split(b" ") if not line.startswith(b" ") else [b"", *line.split()]
        labels = [int(one) for one in first.split(b",") if one.strip()]
        split = [pair.split(b":") for pair in pairs if pair.strip()]
        features = np.array([int(feature) for feature, _ in split], np.int64)
        values = np.array([float(value) for _, value in split], np.float32)
        if not np.isfinite(values).all():
            raise ValueError("a value is out of range")
        if any(not 0 <= label < self.nr_labels for label in labels):
            raise ValueError("a label is out of range")
        if len(features) and not 0 <= features.min() <= features.max() < self.nr_features:
            raise ValueError("a feature is out of range")
        return (features, values), [str(label) for label in labels]


class TextsAndLabelLists(TableReader):
    """Two files: one with a text on each line, and one with the labels of the text on the same line."""

    unit = "documents"
    columns = ("text", "label")

    def __init__(self, path: Path, labels: str | Path, *, encoding: str | None = None) -> None:
        self.path, self.labels, self.name = path, Path(labels), str(path)
        self.files = (self.path, self.labels)
        existing_file(self.path, "texts")
        existing_file(self.labels, "label lists")
        self._encodings = [text_encoding(one, encoding) for one in (self.path, self.labels)]
        self.kind = f"texts in {named(self._encodings[0])} with label lists in {self.labels.name}"
        counts = [0, 0]
        for pair in self._pairs():
            counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if counts[0] != counts[1]:
            raise InputError(
                f"{self.labels} does not fit {self.path}", expected=f"{counts[0]:,} lines, one per text",
                received=f"{counts[1]:,}", fix="put the labels of each text on the same line of --label-lists",
            )  # fmt: skip
        self.size = counts[0]

    def records(self) -> Iterator[TableRow]:
        for number, (text, found) in enumerate(self._pairs(), 1):
            self.read = number
            yield TableRow(number, [(text or "").rstrip("\r\n"), (found or "").strip()])

    def _pairs(self) -> Iterator[tuple[str | None, str | None]]:
        files = zip((self.path, self.labels), self._encodings, strict=True)
        texts, labels = (opened_text(path, encoding, newline="\n") for path, encoding in files)
        with texts, labels:
            yield from zip_longest(lines_of(texts, self.path), lines_of(labels, self.labels))


class TextLines(_LineReader):
    """A file with one text per line and no labels."""

    form = "texts, one per line"
    columns = ("text",)

    def records(self) -> Iterator[TableRow]:
        for number, text in self.lines():
            yield TableRow(number, [text])
