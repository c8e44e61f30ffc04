"""Files of benchmarks: the Extreme Classification Repository's sparse features, and PECOS's texts."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import TextFile, load_matrix, load_names
from xmc_tf.tables.reading.packed import opened, unpacked_size
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow

_FEATURES, _LINES, _FOLDER = ["features", "labels"], ["labels", "text"], ["text", "labels"]
_HEADER = re.compile(rb"\s*(\d+)\s+(\d+)\s+(\d+)\s*")
_PECOS_LINE = re.compile(rb"\d+(,\d+)*\t\S")


class SparseFeatures(TableReader):
    """The Extreme Classification Repository's ``documents features labels`` line and ``1,2 7:0.5 9:1.2`` lines."""

    unit = "documents"
    columns = _FEATURES

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.kind = path, str(path), "sparse features of the Extreme Classification Repository"
        with opened(path) as file:
            found = _HEADER.fullmatch(file.readline())
        if found is None:
            raise InputError(f"{path} has no header", expected="the numbers of documents, features and labels")
        self.size, self.nr_features, self.nr_labels = map(int, found.groups())

    def records(self) -> Iterator[TableRow | BadRow]:
        """Yield ((feature numbers, values), label numbers) of each document."""
        with opened(self.path) as file:
            file.readline()
            for number, line in enumerate(file, 2):
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


class PecosLines(TableReader):
    """PECOS's lines of ``1,2<TAB>text``: label numbers and the text."""

    unit = "MB"
    columns = _LINES

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.kind = path, str(path), "PECOS's lines of labels and text"
        self.size = max(unpacked_size(path) >> 20, 1)

    def records(self) -> Iterator[TableRow | BadRow]:
        with opened(self.path) as file:
            for number, raw in enumerate(file, 1):
                self.read += len(raw)
                labels, tab, text = raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace").partition("\t")
                if tab:
                    yield TableRow(number, [[one.strip() for one in labels.split(",")], text.rstrip("\r\n")])
                elif labels.strip():
                    yield BadRow(number, "no tab", labels[:80])

    @staticmethod
    def matches(lines: Sequence[bytes]) -> bool:
        lines = [line for line in lines if line.strip()]
        return bool(lines) and all(_PECOS_LINE.match(line.removeprefix(b"\xef\xbb\xbf")) for line in lines)


class PecosFolder(TableReader):
    """A folder of ``X.trn.txt``, ``Y.trn.npz`` and optionally ``X.tst.txt``, ``Y.tst.npz`` and ``labels.txt``."""

    unit = "documents"
    columns = _FOLDER

    def __init__(self, path: Path) -> None:
        self.name, self.kind, self.in_test = str(path), "a folder of texts and label matrices", False
        self._parts = [path / f"X.{part}.txt" for part in ("trn", "tst") if (path / f"X.{part}.txt").is_file()]
        names = path / "labels.txt"
        self._names = load_names(names) if names.is_file() else None
        self._labels = [_labels_of(texts, self._names) for texts in self._parts]
        self.size = sum(Y.shape[0] for Y in self._labels)

    def records(self) -> Iterator[TableRow | BadRow]:
        number, self.in_test = 0, False
        for texts, Y in zip(self._parts, self._labels, strict=True):
            self.in_test = texts.name == "X.tst.txt"
            for text, a, b in zip(TextFile(texts), Y.indptr, Y.indptr[1:], strict=False):
                number += 1
                self.read = number
                labels = [self._names[at] if self._names else str(at) for at in Y.indices[a:b].tolist()]
                yield TableRow(number, [text, labels])

    @staticmethod
    def matches(path: Path) -> bool:
        return (path / "X.trn.txt").is_file() and (path / "Y.trn.npz").is_file()


def _labels_of(texts: Path, names: list[str] | None) -> csr_matrix:
    path = texts.with_name(texts.name.replace("X.", "Y.").replace(".txt", ".npz"))
    Y = csr_matrix(load_matrix(path, name="labels"))
    documents = len(TextFile(texts))
    if Y.shape[0] != documents:
        raise InputError(
            f"{path} does not fit {texts.name}", expected=f"{documents:,} rows, one per line of the texts",
            received=f"{Y.shape[0]:,}",
        )  # fmt: skip
    if names is not None and len(names) != Y.shape[1]:
        raise InputError(
            f"{path} does not fit labels.txt", expected=f"{len(names):,} columns", received=f"{Y.shape[1]:,}"
        )
    return Y
