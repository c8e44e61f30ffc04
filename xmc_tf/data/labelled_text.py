"""Files in PECOS's format with one document per line: its labels, then its text."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data.text import TextFile


@dataclass(frozen=True)
class LabelledText:
    """The layout of a line: ``labels<TAB>text`` by default, with labels such as ``3,14``, ``3:1:0.5`` or ``3::0.5``."""

    text_pos: int = 1  # fields, counted from 0
    label_pos: int = 0
    maxsplit: int = -1  # splits of a line, so that the last field may contain tabs; -1: no limit

    def __post_init__(self) -> None:
        for flag, value in (("--text-pos", self.text_pos), ("--label-pos", self.label_pos)):
            if value < 0:
                raise InputError(f"{flag} is out of range", expected="a whole number, at least 0", received=str(value))

    def texts(self, path: str | Path) -> list[str]:
        """Read the text of each line."""
        return [text for _, text in self._fields(path, self.text_pos)]

    def labels(self, path: str | Path, nr_labels: int) -> tuple[csr_matrix, csr_matrix | None]:
        """Read the label matrix and the relevance of each label; the relevance is None if the first label has none."""
        columns, values, relevances, indptr = list[int](), list[float](), list[float](), [0]
        with_relevance: bool | None = None
        for line, field in self._fields(path, self.label_pos):
            labels = field.split(",") if field.strip() else []
            if labels and with_relevance is None:
                with_relevance = ":" in field
            for label in labels:
                parts = label.split(":")
                if len(parts) != (3 if with_relevance else 1):
                    raise _unreadable(path, line, label, bool(with_relevance))
                columns.append(_label(path, line, parts[0], nr_labels))
                if with_relevance:
                    values.append(_number(path, line, parts[1] or "1", label))
                    relevances.append(_number(path, line, parts[2], label))
            indptr.append(len(columns))
        shape = (len(indptr) - 1, nr_labels)

        def matrix(data: list[float]) -> csr_matrix:
            # The constructor keeps its arrays, so summing duplicate labels of a line would change them.
            out = csr_matrix((np.array(data, np.float32), np.array(columns, np.int64), np.array(indptr)), shape=shape)
            out.sum_duplicates()
            return out

        if with_relevance:
            return matrix(values), matrix(relevances)
        return matrix([1.0] * len(columns)), None

    def _fields(self, path: str | Path, position: int) -> Iterator[tuple[int, str]]:
        """Yield the number of each line, from 1, and one of its fields."""
        needed = max(self.text_pos, self.label_pos) + 1
        for line, text in enumerate(TextFile(path, name="labelled texts"), start=1):
            fields = text.split("\t", self.maxsplit)
            if len(fields) < needed:
                raise InputError(
                    f"{path}, line {line:,} has too few fields",
                    expected=f"{needed} fields, separated by tabs (--text-pos {self.text_pos}, "
                    f"--label-pos {self.label_pos})",
                    received=f"{len(fields)} in {text[:60]!r}",
                    fix="check --text-pos; use --from-file true for a file that contains only texts",
                )
            yield line, fields[position]


def _label(path: str | Path, line: int, text: str, nr_labels: int) -> int:
    word = text.strip()
    if not (word.isascii() and word.isdigit() and len(word) < 19 and int(word) < nr_labels):
        raise InputError(
            f"{path}, line {line:,}: not a valid label number",
            expected=f"a number from 0 to {nr_labels - 1:,}",
            received=repr(word[:60]),
            fix="the label text file (-l) needs a line for each label",
        )
    return int(word)


def _number(path: str | Path, line: int, text: str, label: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise _unreadable(path, line, label, True)
    return value


def _unreadable(path: str | Path, line: int, label: str, with_relevance: bool) -> InputError:
    return InputError(
        f"{path}, line {line:,}: a label cannot be read",
        expected="number:value:relevance, like the first label in the file" if with_relevance else "a number",
        received=repr(label[:60]),
    )
