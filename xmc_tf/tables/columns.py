"""The columns of a table that are read, and how to interpret their cells."""

import html
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from xmc_tf.common.errors import InputError
from xmc_tf.tables.label_cells import NA_LABELS, as_whole, is_record, labels_in

YES = ("1", "1.0", "true", "yes", "x", "wahr", "ja")  # also as spreadsheets and people write them


@dataclass(frozen=True)
class Columns:
    """The positions of the columns to read, and how to interpret them."""

    texts: tuple[int, ...]
    labels: int | None
    separator: str = ""  # between the labels of a cell; "" for one label per cell
    document: int | None = None  # identifies the document, if each row holds one of its labels
    ids: int | None = None
    same_text: bool = False  # rows with the same text are one document, and each row holds one of its labels
    indicators: Sequence[tuple[int, str]] = ()  # positions and names of labels with a column of 0 and 1 each
    whole: bool = False  # labels are whole numbers, possibly written as 2580.0
    more_labels: Sequence[int] = ()  # further columns of labels
    keep_na: bool = False  # "nan", "None" and the like are labels
    fold: bool = False  # labels that differ only in case or blanks are one
    html: bool = False  # texts have entities of HTML, such as &amp;

    @property
    def label_places(self) -> tuple[int, ...]:
        """The positions of the label columns, without columns of 0 and 1."""
        return () if self.labels is None else (self.labels, *self.more_labels)

    @property
    def merges_rows(self) -> bool:
        """Whether several rows may belong to the same document."""
        return self.document is not None or self.same_text

    def document_of(self, cells: Sequence[Any]) -> str | None:
        """Return a key that all rows of the same document share, or None if each row is a document."""
        if self.document is not None:
            return text_of_cell(cells[self.document])
        return self.text_of(cells) if self.same_text else None

    def text_of(self, cells: Sequence[Any]) -> str:
        """Return the text of a row: the cells of all text columns, joined by line breaks."""
        text = "\n".join(value for at in self.texts if (value := text_of_cell(cells[at]).strip()))
        return html.unescape(text).strip() if self.html else text

    def fault(self, cells: Sequence[Any]) -> str:
        """Return why a row has no text or no labels that can be read; "" if it has."""
        if any(is_record(cells[at], False) for at in self.texts):
            return "a dictionary in place of a text"
        if any(is_record(cells[at], True) for at in self.label_places):
            return "dictionaries or lists in place of labels"
        return ""

    def id_of(self, cells: Sequence[Any]) -> str:
        """Return the identifier of a row's document; "" if the table has none."""
        place = self.ids if self.document is None else self.document
        return "" if place is None else " ".join(text_of_cell(cells[place]).split())

    def labels_of(self, cells: Sequence[Any]) -> list[str]:
        """Return the labels of a row in their order, without duplicates."""
        if self.labels is None:
            return [label for at, label in self.indicators if text_of_cell(cells[at]).strip().lower() in YES]
        found = dict.fromkeys(
            label for at in self.label_places for label in labels_of_cell(cells[at], self.separator, self.keep_na)
        )
        return [as_whole(one) for one in found] if self.whole else list(found)


@dataclass(frozen=True)
class TrainedColumns:
    """The names of the columns of the table on which a model was trained."""

    texts: tuple[str, ...]
    labels: str | None = None
    separator: str = ""
    document: str | None = None
    label_ids: Mapping[str, str] = field(default_factory=dict)  # label in the table → name in the model
    same_text: bool = False
    indicators: tuple[str, ...] = ()
    keep_na: bool = False
    html: bool = False

    @classmethod
    def of(cls, columns: Columns, names: Sequence[str], label_ids: Mapping[str, str] | None = None) -> Self:
        """Create `TrainedColumns` from column positions and the names of all columns."""
        labels = ",".join(names[at] for at in columns.label_places) or None
        document = None if columns.document is None else names[columns.document]
        return cls(
            tuple(names[at] for at in columns.texts), labels, columns.separator, document, label_ids or {},
            columns.same_text, tuple(name for _, name in columns.indicators), columns.keep_na, columns.html,
        )  # fmt: skip

    @classmethod
    def from_json(cls, content: Any) -> Self | None:
        """Restore an object from the result of `to_json`; return None for anything else."""
        if not isinstance(content, dict) or not isinstance(content.get("texts"), list):
            return None
        known = {one.name: content[one.name] for one in fields(cls) if one.name in content}
        return cls(**known | {name: tuple(map(str, content.get(name, ()))) for name in ("texts", "indicators")})

    def to_json(self) -> dict[str, Any]:
        found, optional = asdict(self), ("label_ids", "same_text", "indicators", "keep_na", "html")
        found |= {"texts": list(self.texts), "indicators": list(self.indicators)}
        return {key: value for key, value in found.items() if value or key not in optional}


@dataclass(frozen=True)
class ColumnOptions:
    """The user's choice of columns. None means the same column as in training, or else a guess.

    Args:
        text: names of the text columns.
        labels: name of the label column, or the comma-separated names of several: their labels are joined, or, if they
            are columns of 0 and 1, each is a label.
        separator: separator of the labels in a cell; "" if each cell holds one label.
        document: name of the column that identifies the document, if each row holds one of the document's labels; "" if
            each row is a document.
        ids: name of the column with document identifiers, which are shown in lists of documents.
        trained: the columns on which the model was trained.
        keep_na: whether labels such as "nan", "None" and "-" are labels rather than missing ones.
        fold: whether labels that differ only in case or blanks are one.
        python: whether messages name Python arguments instead of flags.
    """

    text: Sequence[str] | None = None
    labels: str | None = None
    separator: str | None = None
    document: str | None = None
    ids: str | None = None
    trained: TrainedColumns | None = None
    keep_na: bool = False
    fold: bool = False
    python: bool = False

    def named(self, what: str) -> str:
        """Return the flag or argument that selects a column.

        Args:
            what: the content of the column: "text", "label", "document" or "id".
        """
        if self.python:
            return {"text": 'text="NAME"', "label": 'labels="NAME"'}.get(what, "the name of a column")
        return f"--{what}-column NAME"

    def naming(self, texts: Sequence[str]) -> str:
        """Return the flag or argument that selects text columns.

        Args:
            texts: the names of the columns.
        """
        if self.python:
            return f"text={texts[0]!r}" if len(texts) == 1 else f"text={[*texts]!r}"
        return f"--text-column {shlex.quote(','.join(texts))}"


def place_of(name: str, columns: Sequence[str], wanted: str, flag: str) -> int:
    """Return the position of a column, which is given by its name (in any case) or its number (from 0)."""
    lower = [column.strip().lower() for column in columns]
    for candidates, one in ((list(columns), wanted), (lower, wanted.strip().lower())):
        if candidates.count(one) == 1:
            return candidates.index(one)
    if (count := lower.count(wanted.strip().lower())) > 1:
        raise InputError(
            f"{name} has {count} columns {wanted[:80]!r}", expected="a name that one column has",
            received=", ".join(columns[:20]), fix="rename them, or choose one by its number, from 0",
        )  # fmt: skip
    if wanted.isascii() and wanted.isdecimal() and len(wanted) < 10 and int(wanted) < len(columns):
        return int(wanted)
    problem = f"{name} has no column {wanted[:80]!r}"
    if parts := parts_of(wanted, columns):
        problem = f"{name}: {wanted[:80]!r} holds dictionaries, whose parts are columns"
    shown = ", ".join((parts or columns)[:20]) + (", …" if len(parts or columns) > 20 else "")
    raise InputError(problem, expected=f"one of {shown}", fix=flag)


def parts_of(record: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that hold parts of the dictionaries in a column: doc.title, labels[].name."""
    return [one for one in columns if one.startswith((f"{record}.", f"{record}["))]


def labels_of_cell(cell: Any, separator: str, keep_na: bool = True) -> list[str]:
    """Return the labels of a cell, in order; without "nan" and the like, unless they are to be kept or in a list."""
    if not isinstance(cell, list | tuple):
        return [one for one in labels_in(text_of_cell(cell), separator) if keep_na or one.lower() not in NA_LABELS]
    return list(dict.fromkeys(label for one in cell if (label := text_of_cell(one).strip())))


def text_of_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, list | tuple):
        return "\n".join(part for part in map(text_of_cell, value) if part.strip())
    if isinstance(value, Mapping):
        raise InputError("a cell holds a dictionary", expected="a text or a list", received=repr(value)[:80])
    if isinstance(value, float):  # a column of whole numbers with a missing cell arrives as 3.0
        return "" if value != value else str(int(value) if value.is_integer() else value)
    return str(value)


def shown_cell(value: Any) -> str:
    """Return a cell as a text for guesses and messages, whatever it holds."""
    return str(value) if is_record(value, False) else text_of_cell(value)
