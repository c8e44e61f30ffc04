"""Read folders of documents: Annif's document corpora, and PECOS's texts with label matrices."""

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import TextFile, load_matrix, load_names
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow

_LOG = logging.getLogger(__name__)


class AnnifFolder(TableReader):
    """A document corpus: a text ``name.txt`` has its labels in ``name.tsv`` (uri, label) or ``name.key`` (labels)."""

    kind = "Annif's document folder"
    _has_warned = False
    unit = "documents"
    columns = ("text", "labels")

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._texts = sorted(path.glob("*.txt"))
        self.size = len(self._texts)
        self.files = [file for text in self._texts for file in (text, _subjects_file(text)) if file is not None]
        if not self.matches(path):
            raise InputError(
                f"{path} is not a folder of documents",
                expected="name.txt with a text, and name.tsv or name.key with its subjects, for each document",
            )

    def records(self) -> Iterator[TableRow | BadRow]:
        damaged: list[str] = []
        for number, path in enumerate(self._texts, 1):
            self.read = number
            if (subjects := _subjects_file(path)) is None:
                yield BadRow(number, "no .tsv or .key file with its subjects", path.name)
                continue
            cells = [_text(path), list(_subjects(subjects))]
            damaged += [path.name] if any("\ufffd" in one for one in (cells[0], *cells[1])) else []
            yield TableRow(number, cells)
        if damaged and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "%s: characters of %s documents are not UTF-8 and become U+FFFD; the first document: %s; convert them, "
                "for example with iconv", self.name, f"{len(damaged):,}", damaged[0],
            )  # fmt: skip

    @property
    def label_names(self) -> Mapping[str, str]:
        return self._names

    @cached_property
    def _names(self) -> dict[str, str]:
        """The name of each URI in the .tsv files; the first one, if it has several."""
        names: dict[str, str] = {}
        for path in self.files:
            if path.suffix == ".tsv":
                for uri, name in _subjects(path).items():
                    names.setdefault(uri, name)
        return {uri: name for uri, name in names.items() if name}

    @staticmethod
    def matches(path: Path) -> bool:
        return any(_subjects_file(text) for text in path.glob("*.txt"))


class PecosFolder(TableReader):
    """A folder with ``X.trn.txt`` and ``Y.trn.npz``, and optionally ``X.tst.txt``, ``Y.tst.npz`` and ``labels.txt``."""

    kind = "a folder of texts and label matrices"
    unit = "documents"
    columns = ("text", "labels")

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._parts = [path / f"X.{part}.txt" for part in ("trn", "tst") if (path / f"X.{part}.txt").is_file()]
        names = path / "labels.txt"
        self.files = [*self._parts, *map(_labels_file, self._parts), *([names] if names.is_file() else [])]
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
                own = Y.indices[a:b][Y.data[a:b] != 0].tolist()
                labels = [self._names[at] if self._names else str(at) for at in own]
                yield TableRow(number, [text, labels])

    @staticmethod
    def matches(path: Path) -> bool:
        return (path / "X.trn.txt").is_file() and (path / "Y.trn.npz").is_file()


def _subjects_file(text: Path) -> Path | None:
    return next((path for path in (text.with_suffix(".tsv"), text.with_suffix(".key")) if path.is_file()), None)


def _subjects(path: Path) -> dict[str, str]:
    """Return the subjects of a document, and their names in a .tsv file."""
    lines = [line.strip() for line in _text(path).splitlines() if line.strip()]
    if path.suffix != ".tsv":
        return dict.fromkeys(lines, "")
    pairs = [line.split("\t") for line in lines]
    return {pair[0].strip().strip("<>"): pair[1].strip() if len(pair) > 1 else "" for pair in pairs}


def _labels_file(texts: Path) -> Path:
    return texts.with_name(texts.name.replace("X.", "Y.").replace(".txt", ".npz"))


def _text(path: Path) -> str:
    return path.read_text("utf-8-sig", errors="replace")


def _labels_of(texts: Path, names: list[str] | None) -> csr_matrix:
    path = _labels_file(texts)
    Y = csr_matrix(load_matrix(path, name="labels"))
    file = TextFile(texts)
    file.check()
    if Y.shape[0] != (documents := len(file)):
        raise InputError(
            f"{path} does not fit {texts.name}", expected=f"{documents:,} rows, one per line of the texts",
            received=f"{Y.shape[0]:,}",
        )  # fmt: skip
    if names is not None and len(names) != Y.shape[1]:
        raise InputError(
            f"{path} does not fit labels.txt", expected=f"{len(names):,} columns", received=f"{Y.shape[1]:,}"
        )
    return Y
