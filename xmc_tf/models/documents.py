"""Convert documents and labels from every form that users may pass to the form that the models read."""

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

import numpy as np
from scipy.sparse import issparse, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data.features import Features, as_features
from xmc_tf.data.in_memory import as_columns, columns_of, is_frame, is_listing, listed, plain
from xmc_tf.data.text import LazyTexts, TextFile, Texts
from xmc_tf.params.values import nearest

_LOG = logging.getLogger(__name__)
_TEXTS = (str, bytes)


def read_texts(documents: Any, name: str = "texts", *, training: bool = False) -> Texts | None:
    """Return the texts of documents, or None if the input holds features. A missing text (None, NaN) becomes ""."""
    if isinstance(documents, TextFile | LazyTexts):
        return documents
    if isinstance(documents, Features) or issparse(documents):
        return None
    if isinstance(documents, os.PathLike) or (training and isinstance(documents, _TEXTS)):
        raise InputError(
            f"{name} is a {'path' if isinstance(documents, os.PathLike) else 'single text'}",
            expected="a list of texts, a Series, a DataFrame or a TextFile",
            received=repr(documents)[:80],
            fix="TextFile(path) for a file with one text per line, pandas.read_csv(path) for a table",
        )
    if isinstance(documents, _TEXTS):
        return [documents]  # type: ignore[return-value]  # of either type
    values = documents
    if hasattr(values, "__array__") and not hasattr(values, "__iter__"):
        values = np.asarray(values)
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "OUST":
            return None
        if values.ndim == 2 and values.shape[1] == 1:
            values = values.ravel()
        if values.ndim != 1:
            if values.dtype.kind != "O" or any(isinstance(value, _TEXTS) for value in values.flat):
                raise InputError(
                    f"{name} is a table of texts",
                    expected="one column of texts",
                    received=f"an array of shape {values.shape}",
                    fix=f"{name}[:, 0] for the first column",
                )
            return None
    values = listed(values)
    if isinstance(values, set | frozenset):
        raise InputError(f"{name} is a set, which has no order", expected="a list of texts", fix="pass a list")
    if not isinstance(values, Iterable) or isinstance(values, Mapping):
        raise InputError(
            f"{name} is neither texts nor features", expected="a list of texts, a Series, a DataFrame or a matrix",
            received=type(values).__name__,
        )  # fmt: skip
    values = values if isinstance(values, list) else list(values)
    if set(map(type, values)) <= set(_TEXTS):
        return values
    values = [plain(value) for value in values]
    present = [value for value in values if value is not None]
    # Lists of words, and numbers, are neither texts nor features: _filled raises an error for them.
    words = present and is_listing(present[0]) and any(isinstance(word, str) for word in present[0])
    numbers = present and isinstance(present[0], int | float)
    if present and not words and not numbers and not any(isinstance(value, _TEXTS) for value in present):
        return None
    return _filled(values, name)


def _filled(values: list[Any], name: str) -> list[Any]:
    """Return the texts, with "" for missing ones. Raise InputError if another value is not a text."""
    missing = [row for row, value in enumerate(values) if value is None]
    if missing:
        _LOG.warning(
            "%s: %s of %s are missing and count as empty; the first is document %s", name, f"{len(missing):,}",
            f"{len(values):,}", f"{missing[0]:,}",
        )  # fmt: skip
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, _TEXTS):
            words = is_listing(value) and all(isinstance(word, str) for word in value)
            raise InputError(
                f"{name}: document {row:,} is not a text",
                expected="text (str) for every document",
                received=f"{type(value).__name__}: {value!r}"[:80],
                fix='join each list of words: " ".join(words)' if words else "convert each document: str(text)",
            )
    return ["" if value is None else value for value in values]


if TYPE_CHECKING:
    from xmc_tf.tables.columns import ColumnOptions, TrainedColumns
    from xmc_tf.tables.label_forms import LabelData
    from xmc_tf.tables.reading.options import SourceOptions
    from xmc_tf.tables.reading.records import TableReader

# Table readers are imported only for tables; a query needs none.

_LOG = logging.getLogger(__name__)
_SAMPLE = 1000


class DataFrameLike(Protocol):
    """A table in memory with named columns, such as a DataFrame of pandas, Polars or PyArrow."""

    @property
    def columns(self) -> Any:
        """The column names, or the columns themselves."""
        ...

    def __getitem__(self, name: Any, /) -> Any: ...


FrameLike: TypeAlias = DataFrameLike | Mapping[str, Any]
FeaturesLike: TypeAlias = Features | spmatrix | np.ndarray
DocumentsLike: TypeAlias = Texts | Iterable[str] | FeaturesLike | FrameLike
"""Documents in any accepted form: texts, features, or a table with a text column."""


class FrameColumns(TypedDict, total=False):
    """Options for documents in a DataFrame of pandas, Polars or PyArrow, or a dictionary of columns.

    Example:
        >>> frame = {"title": ["Rye bread", "Herbs in pots"], "subjects": ["baking|bread", "gardening"]}
        >>> model = XRLinear.train(frame, text="title", labels="subjects", label_separator="|")
    """

    text: str | int | Sequence[str | int]
    """Name of the text column, or several names of columns that are joined (default: as in training; for training,
    the column ``text`` or a guess)."""

    label_separator: str
    """Separator of a document's labels; "" for a single label (default: as in training; for training, a guess)."""

    keep_na_labels: bool
    """Whether labels such as "nan", "None", "null", "N/A" and "-" are labels (default: they are missing ones)."""

    fold_labels: bool
    """Whether labels that differ only in case or blanks are one, in their most frequent spelling (default: false)."""


@dataclass(frozen=True, eq=False)
class ReadDocuments:
    """Documents and labels in the form that the models read."""

    texts: Texts | None
    features: Any = None
    labels: "LabelData | None" = None
    columns: "TrainedColumns | None" = None

    @property
    def documents(self) -> Any:
        """The texts, or the feature matrix."""
        return as_features(self.features) if self.texts is None else self.texts

    def only_texts(self) -> Texts:
        """Return the texts; raise an error if the documents are features."""
        if self.texts is None:
            raise InputError(
                "texts contains features", expected="texts, because the model has an encoder",
                received=type(self.features).__name__, fix="pass the features as X, in addition to the texts",
            )  # fmt: skip
        return self.texts

    def labelled(self) -> "LabelData":
        """Return the labels; raise an error if there are none."""
        if self.labels is None:
            raise InputError(
                "labels is missing", expected="the labels of each document",
                fix='pass labels=[["food", "kitchen"], ["garden"]], or the name of the DataFrame\'s label column',
            )  # fmt: skip
        return self.labels


def read_documents(
    documents: Any, labels: Any = None, columns: FrameColumns | None = None, *, trained: "TrainedColumns | None" = None,
    training: bool = False, labelled: bool = False, name: str = "texts", labels_name: str = "labels",
) -> ReadDocuments:  # fmt: skip
    """Read documents, and their labels if there are any, in any accepted form.

        >>> read_documents({"title": ["Rye bread"], "subjects": ["baking; bread"]}, "subjects").texts
        ['Rye bread']

    A dictionary of strings is a table with one row; a list of dictionaries is a table with one row for each dictionary.
    """
    columns = columns or {}
    if unknown := set(columns) - set(FrameColumns.__annotations__):
        raise unexpected_argument(min(unknown), ["labels", *FrameColumns.__annotations__])
    if documents is None:
        raise InputError(f"{name} is None", expected="texts, features or a DataFrame")
    _warn_of_order(documents, labels, name, labels_name)
    documents = _as_table(documents)
    labels, columns = _column_names(documents, labels, columns)
    if is_frame(documents) and not (isinstance(labels, str) or "text" in columns or trained) and _is_numeric(documents):
        texts: Texts | None = None  # a table of features
    elif is_frame(documents):
        return _read_frame(documents, labels, columns, trained, labelled and labels is None, (name, labels_name))
    else:
        if "text" in columns or (isinstance(labels, str) and not isinstance(documents, str)):
            raise InputError(
                f"columns are named, but {name} is not a DataFrame", expected="a DataFrame, or a dictionary of columns",
                received=type(documents).__name__,
                fix="pass the DataFrame as the first argument, or pass texts and labels as lists",
            )  # fmt: skip
        texts = read_texts(documents, name, training=training)
    features = documents if texts is None else None
    if labels is None:
        return ReadDocuments(texts, features)
    separator = columns.get("label_separator", trained.separator if trained and not training else None)
    labels = [labels] if isinstance(documents, str) and isinstance(labels, str) else labels
    found = _read_labels(labels, separator, labels_name, columns, training)
    if (named := _series_name(documents)) is None:
        return ReadDocuments(texts, features, found)
    from xmc_tf.tables.columns import TrainedColumns

    used = TrainedColumns((named,), _series_name(labels), found.separator)
    return ReadDocuments(texts, features, found, used)


# Names that other libraries and our flags have for arguments.
_MEANT = {
    "label_column": "labels", "target": "labels", "y": "labels", "text_column": "text", "separator": "label_separator",
    "sep": "label_separator", "top_k": "k", "n_jobs": "threads",
}  # fmt: skip


def unexpected_argument(name: str, known: Collection[str]) -> TypeError:
    """Return the error for an unexpected keyword argument; it suggests a known one of similar name or meaning."""
    meant = _MEANT | {one: one for one in known}
    close = meant.get(nearest(name, meant) or "", "")
    return TypeError(f"unexpected argument {name!r}" + (f": did you mean {close}=?" if close in known else ""))


def documents_of_source(
    source: "TableReader", options: "ColumnOptions", *, labelled: bool
) -> tuple[list[str], list[list[str]], "TrainedColumns", list[str]]:
    """Return the texts (one line each), labels, columns and document names of a table.

    If ``labelled``, rows of the same document are merged.
    """
    from xmc_tf.tables.column_choice import SAMPLE, choose_columns
    from xmc_tf.tables.columns import TrainedColumns
    from xmc_tf.tables.reading.records import TableRow

    rows = [row for row in source.records() if isinstance(row, TableRow)]
    chosen, guesses = choose_columns(
        source.name, source.columns, [row.cells for row in rows[:SAMPLE]], options, labelled=labelled
    )
    # A notebook shows warnings only, and nothing else says there what a training reads.
    level = logging.WARNING if options.python and options.trained is None else logging.INFO
    if guesses := [guess for guess in guesses if labelled or guess.startswith("texts:")]:
        _LOG.log(level, "%s: guessed: %s", source.name, "; ".join(guesses))
    for number, row in enumerate(rows):
        if fault := chosen.fault(row.cells):
            raise InputError(
                f"{source.name}, document {number:,}: {fault}", expected="a text, or a list of texts",
                received=" | ".join(map(str, row.cells))[:80], fix="name columns without dictionaries",
            )  # fmt: skip
    texts = [" ".join(chosen.text_of(row.cells).split()) for row in rows]
    labels = [chosen.labels_of(row.cells) for row in rows]
    twins: dict[str, str] = {}
    if chosen.fold:
        labels, twins = _folded(labels)
    ids = [chosen.id_of(row.cells) or row.place for row in rows]
    if options.trained is not None and (known := options.trained.label_ids):
        taken = set(known.values())
        new = {one: f"{name} ({one})" if name in taken else name for one, name in source.label_names.items()}
        names = {**new, **known}
        labels = [list(dict.fromkeys(names.get(label, label) for label in own)) for own in labels]
    if labelled and chosen.merges_rows:
        of_document: dict[str | None, tuple[str, str, list[str]]] = {}
        for row, text, own, one in zip(rows, texts, labels, ids, strict=True):
            of_document.setdefault(chosen.document_of(row.cells), (one, text, []))[2].extend(own)
        ids = [one for one, _, _ in of_document.values()]
        texts = [text for _, text, _ in of_document.values()]
        labels = [list(dict.fromkeys(own)) for _, _, own in of_document.values()]
    return texts, labels, TrainedColumns.of(chosen, source.columns, twins), ids


def labelled_rows(
    table: str, source: "SourceOptions", options: "ColumnOptions", used_for: str
) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the texts, labels and document names of a table; rows without a text or a label are left out.

    A warning counts the rows left out; it ends with "are not" and ``used_for``, such as "appended".
    """
    from xmc_tf.tables.reading.sources import open_source

    texts, labels, _, ids = documents_of_source(open_source(table, source), options, labelled=True)
    usable = [row for row, (text, own) in enumerate(zip(texts, labels, strict=True)) if text and own]
    if not usable:
        raise InputError(
            f"{table} has no row with a text and a label", received=f"none in {len(texts):,} rows",
            fix="check --text-column, --label-column and --label-separator",
        )  # fmt: skip
    if len(usable) < len(texts):
        left = len(texts) - len(usable)
        _LOG.warning(
            "%s: %s of %s documents have no text or no label and are not %s", table, f"{left:,}", f"{len(texts):,}",
            used_for,
        )  # fmt: skip
    return [texts[row] for row in usable], [labels[row] for row in usable], [ids[row] for row in usable]


def _warn_of_order(documents: Any, labels: Any, name: str, labels_name: str) -> None:
    """Warn if two objects of pandas have the same rows in another order, because rows are paired by position."""
    ours: Any = getattr(documents, "index", None)
    theirs: Any = getattr(labels, "index", None)
    if not hasattr(ours, "equals") or not hasattr(theirs, "equals") or ours.equals(theirs):
        return
    if len(ours) == len(theirs) and set(ours) == set(theirs):
        _LOG.warning(
            "the indexes of %s and %s have the same entries in another order; rows are paired by position "
            "(%s.loc[%s.index] pairs them by index)", name, labels_name, labels_name, name,
        )  # fmt: skip


def _as_table(documents: Any) -> Any:
    """Convert dictionaries of values to a dictionary of columns, and collect a LazyFrame; keep other data unchanged."""
    if isinstance(documents, Mapping) and is_frame(documents) and documents:
        values = documents.values()
        one = any(isinstance(value, str | bytes | Mapping) for value in values) or not any(map(is_listing, values))
        return {key: [value] for key, value in documents.items()} if one else documents
    return as_columns(documents)


def _column_names(documents: Any, labels: Any, columns: FrameColumns) -> tuple[Any, FrameColumns]:
    """Return the arguments with names of columns as texts: numbers, pandas' levels, and several label columns."""
    if not is_frame(documents):
        return labels, columns
    from xmc_tf.tables.reading.structured import column_name

    names, found = columns_of(documents)
    if isinstance(labels, Integral) or (isinstance(labels, tuple) and labels in names):
        labels = column_name(labels)
    elif isinstance(labels, list | tuple) and labels and all(isinstance(one, str | tuple | Integral) for one in labels):
        each = all(one in names for one in labels) and len(labels) != len(found[0])
        labels = ",".join(map(column_name, labels)) if each else labels
    text: Any = columns.get("text")
    if isinstance(text, Integral) or (isinstance(text, tuple) and text in names):
        columns = {**columns, "text": column_name(text)}
    elif isinstance(text, tuple | list):
        columns = {**columns, "text": [column_name(one) for one in text]}
    return labels, columns


def _is_numeric(frame: Any) -> bool:
    from xmc_tf.tables.reading.structured import Frame

    rows = [row.cells for row, _ in zip(Frame(frame).records(), range(_SAMPLE), strict=False)]  # type: ignore[union-attr]
    kinds = {type(cell) for cells in rows for cell in cells} - {type(None)}  # a missing number
    return bool(kinds) and all(issubclass(kind, bool | int | float) for kind in kinds)


def _read_frame(
    frame: Any, labels: Any, columns: FrameColumns, trained: "TrainedColumns | None", labelled: bool,
    names: tuple[str, str],
) -> ReadDocuments:  # fmt: skip
    """Return the texts of a table with their labels, which are a column of the table or a separate argument."""
    from xmc_tf.tables.columns import ColumnOptions
    from xmc_tf.tables.label_forms import LISTS, LabelData
    from xmc_tf.tables.reading.sources import open_source
    from xmc_tf.tables.reading.structured import column_name

    text: Any = columns.get("text")
    named = isinstance(labels, str)
    options = ColumnOptions(
        [text] if isinstance(text, str) else text, labels if named else None, columns.get("label_separator"),
        trained=trained, keep_na=columns.get("keep_na_labels", False), fold=columns.get("fold_labels", False),
        python=True,
    )  # fmt: skip
    texts, own, used, _ = documents_of_source(open_source(frame), options, labelled=named or labelled)
    guessed = {name: column for name, column in zip(*columns_of(frame), strict=True) if column_name(name) in used.texts}
    if text is None and trained is None and _is_numeric(guessed):
        raise InputError(
            f"{names[0]} has no column of texts", expected="a column of texts, or features and labels apart",
            received=f"numbers in column {used.texts[0]!r}",
            fix="pass frame.drop(columns=...) as features and frame[...] as labels; for numbers as texts, name text=",
        )  # fmt: skip
    if empty := texts.count(""):
        _LOG.warning(
            "%s: %s of %s documents have no text, the first is document %s", names[0], f"{empty:,}", f"{len(texts):,}",
            f"{texts.index(''):,}",
        )  # fmt: skip
    if not (named or labelled):
        found = None
        if labels is not None:
            found = _read_labels(labels, columns.get("label_separator"), names[1], columns, trained is None)
        separator = "" if found is None else found.separator
        return ReadDocuments(texts, None, found, replace(used, labels=_series_name(labels), separator=separator))
    _count_bare(own, names[1])
    if trained is None:
        _warn_of_twins(own, names[1])
    return ReadDocuments(texts, None, LabelData(LISTS, own, separator=used.separator), used)


def _series_name(values: Any) -> str | None:
    """Return the name of a Series of pandas or Polars, in which it may be a number or "" for none."""
    from xmc_tf.tables.reading.structured import column_name

    name = getattr(values, "name", None)
    return column_name(name) or None if name is not None and hasattr(values, "to_list") else None


def _read_labels(labels: Any, separator: str | None, name: str, columns: FrameColumns, training: bool) -> "LabelData":
    from xmc_tf.tables.label_cells import NA_LABELS
    from xmc_tf.tables.label_forms import LISTS, read_labels

    found = read_labels(labels, separator, name)
    if found.is_matrix:
        return found
    lists = found.lists
    if not all(isinstance(label, str) for own in lists for label in own):
        _count_bare(lists, name)
        return found
    texts = found.separator or all(len(own) < 2 for own in lists)  # in lists of labels, a missing one is None
    missing = [label for own in lists for label in own if texts and label.lower() in NA_LABELS]
    if missing and not columns.get("keep_na_labels"):
        shown = " and ".join(map(repr, dict.fromkeys(missing)))
        _LOG.warning("%s: %s labels are missing ones: %s (keep_na_labels)", name, f"{len(missing):,}", shown)
        lists = [[label for label in own if label.lower() not in NA_LABELS] for own in lists]
        found = replace(found, form=LISTS, values=lists)
    if columns.get("fold_labels"):
        found = replace(found, form=LISTS, values=_folded(lists)[0])
    elif training:
        _warn_of_twins(lists, name)
    _count_bare(found.lists, name)
    return found


def _folded(labels: Sequence[Sequence[str]]) -> tuple[list[list[str]], dict[str, str]]:
    """Return labels in one spelling if they differ only in case or blanks; and the spelling of each that changed."""
    from xmc_tf.tables.label_cells import folded, spellings

    spelled = spellings(label for own in labels for label in own)
    names = {label: spelled[folded(label)] for own in labels for label in own}
    changed = {label: name for label, name in names.items() if label != name}
    return [list(dict.fromkeys(names[label] for label in own)) for own in labels], changed


def _warn_of_twins(labels: Sequence[Sequence[str]], name: str) -> None:
    from xmc_tf.tables.label_cells import twins_sentence

    names = list(dict.fromkeys(label for own in labels for label in own))
    if sentence := twins_sentence(names, "fold_labels=True"):
        _LOG.warning("%s: %s", name, sentence)


def _count_bare(labels: Sequence[Sequence[Any]], name: str) -> None:
    if bare := sum(not own for own in labels):
        from xmc_tf.tables.label_cells import USUAL_UNLABELLED

        level = logging.INFO if bare <= USUAL_UNLABELLED * len(labels) else logging.WARNING
        _LOG.log(level, "%s: %s of %s documents have no label", name, f"{bare:,}", f"{len(labels):,}")
