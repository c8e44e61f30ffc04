"""Choose the columns of texts and labels, by flag or by their names; every guess can be reported."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from xmc_tf.common.errors import InputError

TEXTS = ("text", "texts", "document", "content", "body", "sentence", "abstract", "description", "title", "review")
LABELS = (
    "label", "labels", "tag", "tags", "category", "categories", "class", "classes", "topic", "topics", "subjects",
    "keywords", "target", "targetind",
)  # fmt: skip
SEPARATORS = ("\t", "|", ";", ",")
IDS = ("id", "ids", "uid", "identifier", "docid", "documentid", "recordid", "uri", "url")
_NEITHER = ("id", "ids", "uid", "uri", "url", "number", "no", "nr", "row", "index", "date", "time")
_LONGEST_LABEL = 200  # characters
_USUAL_LABEL = 40  # mean characters of the parts of a cell that are probably labels
_LISTS = 0.2  # share of a column's cells that hold several labels


@dataclass(frozen=True)
class Columns:
    """The columns that are read, and the separator of the labels in a cell.

    Args:
        texts: places of the columns whose cells are joined to the text.
        labels: place of the column of labels; None: the table has no labels.
        separator: between the labels of a cell; "" if a cell holds one label.
        document: place of the column that names the document, where each row holds one of its labels; None: each row
            is a document of its own.
        ids: place of the column of what documents are called; None: the table has none.
    """

    texts: tuple[int, ...]
    labels: int | None
    separator: str = ""
    document: int | None = None
    ids: int | None = None

    def text_of(self, cells: Sequence[Any]) -> str:
        """Return the text of a row: its cells, joined by a line end."""
        return "\n".join(value for at in self.texts if (value := _text(cells[at]).strip()))

    def id_of(self, cells: Sequence[Any]) -> str:
        """Return what the document of a row is called; "" if the table does not say it."""
        place = self.ids if self.document is None else self.document
        return "" if place is None else " ".join(_text(cells[place]).split())

    def labels_of(self, cells: Sequence[Any]) -> list[str]:
        """Return the different labels of a row, in their order."""
        if self.labels is None:
            return []
        cell = cells[self.labels]
        if isinstance(cell, list | tuple):
            found = [_text(one).strip() for one in cell]
        else:
            text = _text(cell)
            found = [one.strip() for one in (text.split(self.separator) if self.separator else [text])]
        return list(dict.fromkeys(label for label in found if label))


@dataclass(frozen=True)
class TrainedColumns:
    """The columns of the table that a model was trained on, by name.

    Args:
        texts: the columns of texts.
        labels: the column of labels; None: the labels were not in the table.
        separator: between the labels of a cell; "" if a cell holds one label.
        document: the column that names the document, where each row holds one of its labels.
        label_ids: names of the labels by what stands in the table, if a file gave them names.
    """

    texts: tuple[str, ...]
    labels: str | None = None
    separator: str = ""
    document: str | None = None
    label_ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Columns, names: Sequence[str], label_ids: Mapping[str, str] | None = None) -> Self:
        """Return the names of chosen columns.

        Args:
            columns: the chosen columns.
            names: names of all columns of the table.
            label_ids: names of the labels by what stands in the table.
        """
        labels, document = (None if at is None else names[at] for at in (columns.labels, columns.document))
        return cls(tuple(names[at] for at in columns.texts), labels, columns.separator, document, label_ids or {})

    @classmethod
    def from_json(cls, content: Any) -> Self | None:
        """Return what :meth:`to_json` made; None for anything else."""
        if not isinstance(content, dict) or not isinstance(content.get("texts"), list):
            return None
        known = {name: content[name] for name in ("labels", "separator", "document", "label_ids") if name in content}
        return cls(tuple(map(str, content["texts"])), **known)

    def to_json(self) -> dict[str, Any]:
        """Return the columns as values that JSON can hold."""
        found = {**asdict(self), "texts": list(self.texts)}
        return found if self.label_ids else {key: value for key, value in found.items() if key != "label_ids"}


@dataclass(frozen=True)
class ColumnOptions:
    """The user's choice of columns; None: as the model was trained, else guessed.

    Args:
        text: names of the columns of texts.
        labels: name of the column of labels.
        separator: between the labels of a cell; "" for one label per cell.
        document: name of the column that names the document, where each row holds one of its labels.
        ids: name of the column of what documents are called, for lists of documents.
        trained: the columns that the model was trained on.
        python: whether messages name arguments of Python instead of flags.
    """

    text: Sequence[str] | None = None
    labels: str | None = None
    separator: str | None = None
    document: str | None = None
    ids: str | None = None
    trained: TrainedColumns | None = None
    python: bool = False

    def named(self, what: str) -> str:
        """Return how a user names a column, for messages.

        Args:
            what: "text", "label", "document" or "id".
        """
        if self.python:
            return {"text": 'text="NAME"', "label": 'labels="NAME"'}.get(what, "the name of a column")
        return f"--{what}-column NAME"


def choose_columns(
    name: str, columns: Sequence[str], sample: Sequence[Sequence[Any]], options: ColumnOptions, *, labelled: bool = True
) -> tuple[Columns, list[str]]:
    """Return the columns to read, and a sentence about each guess.

    Args:
        name: the table, for messages.
        columns: names of its columns.
        sample: some of its rows.
        options: what the user says.
        labelled: whether the table must have labels.
    """
    guesses: list[str] = []
    options = _as_trained(options, name, columns, labelled)
    document = None
    if options.document is not None:
        document = place_of(name, columns, options.document, options.named("document"))
    if options.labels is not None:
        labels: int | None = place_of(name, columns, options.labels, options.named("label"))
    else:
        labels = _by_name(columns, LABELS, taken=())
        if labels is None and len(columns) == 2 and options.text is None:
            text = _by_name(columns, TEXTS, taken=())
            shorter = min((0, 1), key=lambda at: _mean_length(sample, at))  # the other one is longer: the text
            shorter = shorter if text is None else 1 - text
            labels = None if columns[shorter].strip().lower() in _NEITHER else shorter
        if labels is None and labelled:
            labels = _only_lists(columns, sample, taken=(document,))
        if labels is not None and columns[labels].strip().lower() != "label":
            guesses.append(f"labels: column {columns[labels]!r} ({_short(options, 'label')})")
    if labels is None and labelled:
        raise _unknown(name, columns, "labels", options.named("label"))
    if options.text is not None:
        texts = tuple(place_of(name, columns, one, options.named("text")) for one in options.text)
    else:
        found = _by_name(columns, TEXTS, taken=(labels, document))
        if found is None:
            rest = [at for at in range(len(columns)) if at not in (labels, document)]
            rest = [at for at in rest if columns[at].strip().lower() not in _NEITHER]
            found = max(rest, key=lambda at: _mean_length(sample, at), default=None)
        if found is None and not labelled:  # nothing else can be meant
            found = labels
        if found is None:
            raise _unknown(name, columns, "texts", options.named("text"))
        # A document has its title too, which may be all that a row has.
        title = _by_name(columns, ("title",), taken=(labels, document, found))
        texts = (found,) if title is None else (title, found)
        if title is not None:
            guesses.append(f"texts: columns {columns[title]!r} and {columns[found]!r} ({_short(options, 'text')})")
        elif columns[found].strip().lower() != "text":
            guesses.append(f"texts: column {columns[found]!r} ({_short(options, 'text')})")
    if options.ids is not None:
        ids: int | None = place_of(name, columns, options.ids, options.named("id"))
    else:
        ids = column_of_ids(columns, taken=(labels, *texts))
    separator = options.separator
    if separator is None:
        separator = (
            ""
            if labels is None or document is not None
            else label_separator([row[labels] for row in sample if isinstance(row[labels], str)])
        )
        if separator:
            flag = "label_separator" if options.python else "--label-separator"
            guesses.append(f"labels of a cell are separated by {separator!r} ({flag})")
    return Columns(texts, labels, separator, document, ids), guesses


def _as_trained(options: ColumnOptions, name: str, columns: Sequence[str], labelled: bool) -> ColumnOptions:
    """Return options in which the columns of the model's training stand for what the user does not say."""
    trained = options.trained
    if trained is None:
        return options
    wanted = list(trained.texts) if options.text is None else []
    if labelled and options.labels is None and trained.labels is not None:
        wanted.append(trained.labels)
    if missing := [column for column in wanted if column not in columns]:
        named = "label" if missing == [trained.labels] else "text"
        raise InputError(
            f"{name} has no column {missing[0]!r}, which the model was trained on",
            expected="the columns " + ", ".join(wanted),
            received=", ".join(columns[:20]) + (", …" if len(columns) > 20 else ""),
            fix=f"name the column that takes its place: {options.named(named)}",
        )
    return replace(
        options,
        text=trained.texts or None if options.text is None else options.text,
        labels=trained.labels if labelled and options.labels is None else options.labels,
        separator=trained.separator if options.separator is None else options.separator,
        document=trained.document if options.document is None and trained.document in columns else options.document,
    )


def _short(options: ColumnOptions, what: str) -> str:
    return options.named(what).partition("=" if options.python else " ")[0]


def place_of(name: str, columns: Sequence[str], wanted: str, flag: str) -> int:
    """Return the place of a column that a user names.

    Args:
        name: the table, for messages.
        columns: names of its columns.
        wanted: the name, in any case, or the place.
        flag: the flag that names it, for messages.
    """
    lower = [column.strip().lower() for column in columns]
    for candidates, one in ((list(columns), wanted), (lower, wanted.strip().lower())):
        if candidates.count(one) == 1:
            return candidates.index(one)
    if wanted.isascii() and wanted.isdecimal() and len(wanted) < 10 and int(wanted) < len(columns):
        return int(wanted)
    shown = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
    raise InputError(f"{name} has no column {wanted[:80]!r}", expected=f"one of {shown}", fix=flag)


def column_of_ids(columns: Sequence[str], taken: Sequence[int | None] = ()) -> int | None:
    """Return the place of the column of what documents are called, by its usual names; None: there is none.

    Args:
        columns: names of the columns.
        taken: places of columns that hold something else.
    """
    return _by_name(columns, IDS, taken)


def _by_name(columns: Sequence[str], names: Sequence[str], taken: Sequence[int | None]) -> int | None:
    lower = [re.sub(r"[^a-z]", "", column.lower()) for column in columns]
    return next((lower.index(one) for one in names if one in lower and lower.index(one) not in taken), None)


def _only_lists(columns: Sequence[str], sample: Sequence[Sequence[Any]], taken: Sequence[int | None]) -> int | None:
    """Return the place of the only column whose cells are lists of short parts; None: there is none, or several."""
    found = []
    for at in range(len(columns)):
        if at in taken or columns[at].strip().lower() in _NEITHER:
            continue
        cells = [cell for row in sample if (cell := _text(row[at]).strip())]
        separator = label_separator(cells)
        parts = [part.strip() for cell in cells for part in cell.split(separator)] if separator in ("|", ";") else []
        lists = sum(separator in cell for cell in cells) if parts else 0
        if lists >= _LISTS * len(cells) and sum(map(len, parts)) <= _USUAL_LABEL * len(parts) and parts:
            found.append(at)
    return found[0] if len(found) == 1 else None


def _mean_length(sample: Sequence[Sequence[Any]], at: int) -> float:
    return sum(len(_text(row[at])) for row in sample) / max(len(sample), 1)


def label_separator(cells: Sequence[str]) -> str:
    """Guess what separates the labels of a cell: a character in many cells, whose parts look like labels.

    Args:
        cells: some cells of labels.
    """
    cells = [cell for cell in cells if cell.strip()]
    for separator in SEPARATORS:
        cut = sum(separator in cell for cell in cells)
        parts = [part.strip() for cell in cells for part in cell.split(separator)]
        enough = 1 if separator == "\t" else max(2, 0.1 * len(cells))  # no name of a label contains a tab
        if cut < enough or max(map(len, parts)) > _LONGEST_LABEL:
            continue
        # Names may contain commas ("Paris, France"). Only where parts occur again do commas separate labels.
        if separator != "," or len(set(parts)) <= 0.9 * len(parts):
            return separator
    numbers = [cell.split() for cell in cells]
    only_numbers = all(part.isascii() and part.isdecimal() for parts in numbers for part in parts)
    return " " if only_numbers and any(len(parts) > 1 for parts in numbers) else ""


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    # A column of whole numbers with a missing cell arrives as 3.0.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _unknown(name: str, columns: Sequence[str], what: str, flag: str) -> InputError:
    return InputError(
        f"{name}: it is not known which column holds the {what}",
        expected="one of " + (", ".join(columns[:20]) or "the columns (the table has none)"),
        fix=flag,
    )
