import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.tables.reading.packed import opened
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow

COLUMNS = ["text", "labels"]
_SUBJECT = re.compile(r"<([^<>\s]+)>")


class AnnifTsv(TableReader):
    """Annif's short-text corpus: ``text<TAB><uri> <uri>`` per line, also gzipped."""

    unit = "MB"
    columns = COLUMNS

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.kind = path, str(path), "Annif's TSV"
        self.size = max(path.stat().st_size >> 20, 1)

    def records(self) -> Iterator[TableRow | BadRow]:
        with opened(self.path) as file:
            for number, raw in enumerate(file, 1):
                self.read += len(raw)
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").rstrip("\r\n")
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


class AnnifFolder(TableReader):
    """A document corpus: texts ``name.txt`` with ``name.tsv`` (uri, label) or ``name.key`` (labels) beside them."""

    unit = "documents"
    columns = COLUMNS

    def __init__(self, path: Path) -> None:
        self.name, self.kind = str(path), "Annif's document folder"
        self._texts = sorted(path.glob("*.txt"))
        self.size = len(self._texts)
        if not self.matches(path):
            raise InputError(
                f"{path} is not a folder of documents",
                expected="name.txt with a text, and name.tsv or name.key with its subjects, for each document",
            )

    def records(self) -> Iterator[TableRow | BadRow]:
        for number, path in enumerate(self._texts, 1):
            self.read = number
            labels = _subjects_of(path)
            if labels is None:
                yield BadRow(number, "no .tsv or .key file with its subjects", path.name)
            else:
                yield TableRow(number, [path.read_text("utf-8-sig", errors="replace"), labels])

    @staticmethod
    def matches(path: Path) -> bool:
        return any(_subjects_file(text) for text in path.glob("*.txt"))


def _subjects_file(text: Path) -> Path | None:
    return next((path for path in (text.with_suffix(".tsv"), text.with_suffix(".key")) if path.is_file()), None)


def _subjects_of(text: Path) -> list[str] | None:
    path = _subjects_file(text)
    if path is None:
        return None
    lines = [line.strip() for line in path.read_text("utf-8-sig", errors="replace").splitlines() if line.strip()]
    if path.suffix == ".key":
        return lines
    return [line.split("\t")[0].strip().strip("<>") for line in lines]
