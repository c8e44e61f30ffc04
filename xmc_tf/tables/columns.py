"""Choice of the text and label columns, by flag or by a guess."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from xmc_tf.common.errors import InputError
from xmc_tf.tables.label_cells import BRACKETS, are_whole_floats, as_whole, label_separator, labels_in
from xmc_tf.tables.table_forms import columns_of_zeros_and_ones, is_of_zeros_and_ones, is_yes, rows_are_pairs

TEXTS = ("text", "texts", "document", "content", "body", "sentence", "abstract", "description", "title", "review")
LABELS = (
    "label", "labels", "tag", "tags", "category", "categories", "class", "classes", "topic", "topics", "subjects",
    "subject", "keywords", "keyword", "intent", "target", "targetind",
)  # fmt: skip
IDS = ("id", "ids", "uid", "identifier", "docid", "documentid", "recordid", "uri", "url")
_NEITHER = ("id", "ids", "uid", "uri", "url", "number", "no", "nr", "row", "index", "date", "time")
_USUAL_LABEL = 40  # mean characters of the parts of a cell that are probably labels
_LISTS = 0.2  # share of a column's cells that hold several labels
SAMPLE = 20_000
"""Rows that columns are chosen by: documents with several rows, which may lie apart, must show in them."""
_FIRST = 1000  # of these rows, for what any row shows
_SHOWN_COLUMNS, _SHOWN_LETTERS = 12, 24  # of the cells in a question


@dataclass(frozen=True)
class Columns:
    """The columns that are read, by position."""

    texts: tuple[int, ...]
    labels: int | None
    separator: str = ""
    document: int | None = None
    ids: int | None = None
    same_text: bool = False
    indicators: Sequence[tuple[int, str]] = ()
    whole: bool = False

    @property
    def merges_rows(self) -> bool:
        """Whether several rows may be one document."""
        return self.document is not None or self.same_text

    def document_of(self, cells: Sequence[Any]) -> str | None:
        """Return the key that rows of the same document share; None: each row is a document."""
        if self.document is not None:
            return _text(cells[self.document])
        return self.text_of(cells) if self.same_text else None

    def text_of(self, cells: Sequence[Any]) -> str:
        """Return the text of a row: its cells, joined by line ends."""
        return "\n".join(value for at in self.texts if (value := _text(cells[at]).strip()))

    def id_of(self, cells: Sequence[Any]) -> str:
        """Return the identifier of a row's document; "" if the table has none."""
        place = self.ids if self.document is None else self.document
        return "" if place is None else " ".join(_text(cells[place]).split())

    def labels_of(self, cells: Sequence[Any]) -> list[str]:
        """Return the distinct labels of a row, in their order."""
        if self.labels is None:
            return [label for at, label in self.indicators if is_yes(_text(cells[at]))]
        cell = cells[self.labels]
        if isinstance(cell, list | tuple):
            found = list(dict.fromkeys(label for one in cell if (label := _text(one).strip())))
        else:
            found = labels_in(_text(cell), self.separator)
        return [as_whole(one) for one in found] if self.whole else found


@dataclass(frozen=True)
class TrainedColumns:
    """The columns of the table that a model was trained on, by name."""

    texts: tuple[str, ...]
    labels: str | None = None
    separator: str = ""
    document: str | None = None
    label_ids: Mapping[str, str] = field(default_factory=dict)
    same_text: bool = False
    indicators: tuple[str, ...] = ()

    @classmethod
    def of(cls, columns: Columns, names: Sequence[str], label_ids: Mapping[str, str] | None = None) -> Self:
        """Return the names of chosen columns."""
        labels, document = (None if at is None else names[at] for at in (columns.labels, columns.document))
        return cls(
            tuple(names[at] for at in columns.texts), labels, columns.separator, document, label_ids or {},
            columns.same_text, tuple(name for _, name in columns.indicators),
        )  # fmt: skip

    @classmethod
    def from_json(cls, content: Any) -> Self | None:
        """Return the result of `to_json`; None for other values."""
        if not isinstance(content, dict) or not isinstance(content.get("texts"), list):
            return None
        known = {one.name: content[one.name] for one in fields(cls) if one.name in content}
        return cls(**known | {name: tuple(map(str, content.get(name, ()))) for name in ("texts", "indicators")})

    def to_json(self) -> dict[str, Any]:
        found = {**asdict(self), "texts": list(self.texts), "indicators": list(self.indicators)}
        return {
            key: value for key, value in found.items() if value or key not in ("label_ids", "same_text", "indicators")
        }


@dataclass(frozen=True)
class ColumnOptions:
    """The user's choice of columns; None: as in training, else guessed.

    Args:
        text: names of the text columns.
        labels: name of the label column; or names of columns of 0 and 1, one per label, separated by commas.
        separator: between the labels of a cell; "" for one label per cell.
        document: name of the column that identifies the document, if each row holds one of its labels; "": each row is
            a document.
        ids: name of the column with the identifiers of documents, for lists of documents.
        trained: the columns that the model was trained on.
        python: whether messages name Python arguments instead of flags.
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
    """Return the columns to read, and a sentence about each guess from the first rows (up to `SAMPLE`)."""
    guesses: list[str] = []
    options = _as_trained(options, name, columns, labelled)
    table = _Table(name, columns, sample[:_FIRST])
    document = place_of(name, columns, options.document, options.named("document")) if options.document else None
    labels, indicators = _choose_labels(table, options, document, labelled, guesses)
    texts = _choose_texts(table, options, (labels, document, *(at for at, _ in indicators)), labels, labelled, guesses)
    if options.ids is not None:
        ids: int | None = place_of(name, columns, options.ids, options.named("id"))
    else:
        ids = column_of_ids(columns, taken=(labels, *texts))
    found = Columns(texts, labels, "", document, ids, document is None and _as_before(options), indicators)
    if labels is None:
        return found, guesses
    cells = [row[labels] for row in sample if isinstance(row[labels], str)]
    separator = options.separator
    if separator is None:
        separator = "" if document is not None else label_separator(cells[:_FIRST])
        if separator:
            flag = "label_separator" if options.python else "--label-separator"
            how = "are a list in brackets" if separator == BRACKETS else f"are separated by {separator!r}"
            guesses.append(f"labels of a cell {how} ({flag})")
    whole = are_whole_floats(label for cell in cells for label in labels_in(cell, separator))
    found = replace(found, separator=separator, whole=whole)
    if labelled and options.document is None and options.trained is None:
        found = _of_pairs(found, columns, sample, options, guesses)
    return found, guesses


@dataclass(frozen=True)
class _Table:
    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def _choose_labels(
    table: _Table, options: ColumnOptions, document: int | None, labelled: bool, guesses: list[str]
) -> tuple[int | None, list[tuple[int, str]]]:
    """Return the position of the label column, or positions and names of the columns of 0 and 1."""
    name, columns, flag = table.name, table.columns, _short(options, "label")
    if options.trained is not None and options.trained.indicators and options.labels is None:
        return None, [(at, one) for at, one in enumerate(columns) if one in options.trained.indicators]
    if options.labels is not None and options.labels not in columns and "," in options.labels:
        places = [place_of(name, columns, one, options.named("label")) for one in options.labels.split(",")]
        return None, _checked_indicators(table, places)
    if options.labels is not None:
        return place_of(name, columns, options.labels, options.named("label")), []
    labels = _by_name(columns, LABELS, taken=())
    if labels is None and len(columns) == 2 and options.text is None:
        text = _by_name(columns, TEXTS, taken=())
        shorter = min((0, 1), key=lambda at: _mean_length(table.rows, at))  # the other one is longer: the text
        shorter = shorter if text is None else 1 - text
        labels = None if columns[shorter].strip().lower() in _NEITHER else shorter
    if labels is None and labelled:
        labels = _only_lists(columns, table.rows, taken=(document,))
    if labels is not None and columns[labels].strip().lower() != "label":
        guesses.append(f"labels: column {columns[labels]!r} ({flag})")
    if labels is not None or not labelled:
        return labels, []
    longest = max(range(len(columns)), key=lambda at: _mean_length(table.rows, at), default=0)
    taken = {document, longest, _by_name(columns, TEXTS, taken=()), column_of_ids(columns)}
    taken |= {place_of(name, columns, one, options.named("text")) for one in options.text or ()}
    cells = [[_text(cell) for cell in row] for row in table.rows]
    places = columns_of_zeros_and_ones(cells, [at for at in range(len(columns)) if at not in taken])
    if not places:
        raise _unknown(table, "labels", options.named("label"))
    shown = ", ".join(repr(columns[at]) for at in places[:3]) + (", …" if len(places) > 3 else "")
    guesses.append(f"labels: {len(places):,} columns of 0 and 1: {shown} ({flag})")
    return None, [(at, columns[at]) for at in places]


def _checked_indicators(table: _Table, places: Sequence[int]) -> list[tuple[int, str]]:
    """Return positions and names of columns of 0 and 1 that the user has named."""
    if other := [at for at in places if not is_of_zeros_and_ones([_text(row[at]) for row in table.rows])]:
        cells = [repr(_text(row[other[0]])[:40]) for row in table.rows[:3]]
        raise InputError(
            f"{table.name}: column {table.columns[other[0]]!r} is not of 0 and 1",
            expected="one column of labels, or several of 0 and 1, each of which stands for a label",
            received=", ".join(cells),
            fix="--label-column NAME",
        )
    return [(at, table.columns[at]) for at in places]


def _choose_texts(
    table: _Table,
    options: ColumnOptions,
    taken: Sequence[int | None],
    labels: int | None,
    labelled: bool,
    guesses: list[str],
) -> tuple[int, ...]:
    """Return the positions of the text columns."""
    columns = table.columns
    if options.text is not None:
        return tuple(place_of(table.name, columns, one, options.named("text")) for one in options.text)
    found = _by_name(columns, TEXTS, taken=taken)
    if found is None:
        rest = [at for at in range(len(columns)) if at not in taken]
        rest = [at for at in rest if columns[at].strip().lower() not in _NEITHER]
        found = max(rest, key=lambda at: _mean_length(table.rows, at), default=None)
    if found is None and not labelled:  # nothing else can be meant
        found = labels
    if found is None:
        raise _unknown(table, "texts", options.named("text"))
    # A document has its title too, which may be all that a row has.
    title = _by_name(columns, ("title",), taken=(*taken, found))
    if title is not None:
        guesses.append(f"texts: columns {columns[title]!r} and {columns[found]!r} ({_short(options, 'text')})")
    elif columns[found].strip().lower() != "text":
        guesses.append(f"texts: column {columns[found]!r} ({_short(options, 'text')})")
    return (found,) if title is None else (title, found)


def _as_before(options: ColumnOptions) -> bool:
    """Return whether rows with the same text are one document, as in training."""
    return options.document is None and options.trained is not None and options.trained.same_text


def _of_pairs(
    found: Columns, columns: Sequence[str], sample: Sequence[Sequence[Any]], options: ColumnOptions, guesses: list[str]
) -> Columns:
    """Return the columns of a table that may have one row for each pair of document and label."""
    rows = [(found.id_of(row), found.text_of(row), ";".join(found.labels_of(row))) for row in sample]
    by = rows_are_pairs([row for row in rows if row[1] and row[2]])
    if by == "id" and (ids := found.ids) is not None:
        found = replace(found, document=ids)
        guesses.append(f"one row for each label of a document: column {columns[ids]!r} names the document")
    elif by == "text":
        found = replace(found, same_text=True)
        guesses.append("one row for each label of a document: rows with the same text are one document")
    if by and not options.python:
        guesses[-1] += ' (--document-column; "" if each row is a document of its own)'
    return found


def _as_trained(options: ColumnOptions, name: str, columns: Sequence[str], labelled: bool) -> ColumnOptions:
    """Return options completed by the columns of the model's training."""
    trained = options.trained
    if trained is None:
        return options
    wanted = list(trained.texts) if options.text is None else []
    if labelled and options.labels is None and trained.labels is not None:
        wanted.append(trained.labels)
    if labelled and options.labels is None and not set(trained.indicators) & set(columns):
        wanted.extend(trained.indicators)
    if missing := [column for column in wanted if column not in columns]:
        named = "text" if missing[0] in trained.texts else "label"
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
    """Return the position of a column that a user names, in any case, or gives as a number."""
    lower = [column.strip().lower() for column in columns]
    for candidates, one in ((list(columns), wanted), (lower, wanted.strip().lower())):
        if candidates.count(one) == 1:
            return candidates.index(one)
    if wanted.isascii() and wanted.isdecimal() and len(wanted) < 10 and int(wanted) < len(columns):
        return int(wanted)
    shown = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
    raise InputError(f"{name} has no column {wanted[:80]!r}", expected=f"one of {shown}", fix=flag)


def column_of_ids(columns: Sequence[str], taken: Sequence[int | None] = ()) -> int | None:
    """Return the position of the column of document identifiers, by its usual names; None: there is none."""
    return _by_name(columns, IDS, taken)


def _by_name(columns: Sequence[str], names: Sequence[str], taken: Sequence[int | None]) -> int | None:
    lower = [re.sub(r"[^a-z]", "", column.lower()) for column in columns]
    return next((lower.index(one) for one in names if one in lower and lower.index(one) not in taken), None)


def _only_lists(columns: Sequence[str], sample: Sequence[Sequence[Any]], taken: Sequence[int | None]) -> int | None:
    """Return the position of the only column whose cells are lists of short parts; None: there is none, or several."""
    found = []
    for at in range(len(columns)):
        if at in taken or columns[at].strip().lower() in _NEITHER:
            continue
        cells = [cell for row in sample if (cell := _text(row[at]).strip())]
        separator = label_separator(cells)
        parts = [part for cell in cells for part in labels_in(cell, separator)] if separator in ("|", ";") else []
        lists = sum(separator in cell for cell in cells) if parts else 0
        if lists >= _LISTS * len(cells) and sum(map(len, parts)) <= _USUAL_LABEL * len(parts) and parts:
            found.append(at)
    return found[0] if len(found) == 1 else None


def _mean_length(sample: Sequence[Sequence[Any]], at: int) -> float:
    return sum(len(_text(row[at])) for row in sample) / max(len(sample), 1)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    # A column of whole numbers with a missing cell arrives as 3.0.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _unknown(table: _Table, what: str, flag: str) -> InputError:
    """Return the error that asks which column is meant, with some cells of each."""
    shown = []
    for at, column in enumerate(table.columns[:_SHOWN_COLUMNS]):
        cells = [" ".join(_text(row[at]).split()) for row in table.rows[:3]]
        shown.append(f"{column}: {', '.join(repr(cell[:_SHOWN_LETTERS]) for cell in cells)}")
    return InputError(
        f"{table.name}: it is not known which column holds the {what}",
        expected="one of " + (", ".join(table.columns[:20]) or "the columns (the table has none)"),
        received="; ".join(shown),
        fix=flag,
    )
