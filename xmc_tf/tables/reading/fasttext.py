"""fastText's lines: ``__label__baking __label__bread Rye bread with sourdough``."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from xmc_tf.tables.label_cells import FASTTEXT
from xmc_tf.tables.reading.packed import opened, unpacked_size
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow


class FastTextLines(TableReader):
    """Lines of labels, each with fastText's prefix, before or after the text."""

    unit = "MB"

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.kind = path, str(path), "fastText's lines of labels and text"
        self.columns = ["labels", "text"]
        self.size = max(unpacked_size(path) >> 20, 1)

    def records(self) -> Iterator[TableRow | BadRow]:
        with opened(self.path) as file:
            for number, raw in enumerate(file, 1):
                self.read += len(raw)
                words = raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace").split()
                labels = [word.removeprefix(FASTTEXT) for word in words if word.startswith(FASTTEXT)]
                if words:
                    yield TableRow(number, [labels, " ".join(word for word in words if not word.startswith(FASTTEXT))])

    @staticmethod
    def matches(lines: Sequence[bytes]) -> bool:
        words = [line.removeprefix(b"\xef\xbb\xbf").split() for line in lines if line.strip()]
        found = [line[0].startswith(FASTTEXT.encode()) and b"," not in line[0] for line in words]
        return bool(found) and sum(found) >= 0.9 * len(found)
