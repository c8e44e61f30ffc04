"""Training documents in a DataFrame: columns of texts and labels."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict

from xmc_tf.common.errors import InputError
from xmc_tf.tables.columns import ColumnOptions, choose_columns
from xmc_tf.tables.reading.records import Record, Source
from xmc_tf.tables.reading.structured import Frame, is_frame

_SAMPLE = 1000


class DataFrameLike(Protocol):
    """A table in memory with named columns, such as a DataFrame of pandas, Polars or PyArrow."""

    @property
    def columns(self) -> Any:
        """Names of the columns, or the columns."""
        ...

    def __getitem__(self, name: Any, /) -> Any: ...


FrameLike: TypeAlias = DataFrameLike | Mapping[str, Any]


class FrameColumns(TypedDict, total=False):
    """Options for documents in a DataFrame of pandas, Polars or PyArrow, or a dictionary of columns.

    Example:
        >>> frame = {"title": ["Rye bread", "Herbs in pots"], "subjects": ["baking|bread", "gardening"]}
        >>> model = XRLinear.train(frame, text="title", labels="subjects", label_separator="|")
    """

    text: str | Sequence[str]
    """Name of the column of texts, or several names; their texts are joined (default: ``text``, or guessed)."""

    label_separator: str
    """Text between the labels of a cell; "" for one label per cell (default: guessed; cells may hold lists)."""


def documents_of(texts: Any, labels: Any, columns: FrameColumns) -> tuple[Any, Any]:
    """Return texts and labels as lists if they are columns of a DataFrame, else as they are.

    Args:
        texts: a DataFrame, or anything that training takes.
        labels: name of the column of labels, or anything that training takes.
        columns: which columns hold the texts, and how labels are separated.

    Raises:
        InputError: a column does not exist, or columns are named and there is no DataFrame.
    """
    if unknown := set(columns) - set(FrameColumns.__annotations__):
        raise TypeError(f"unexpected argument {min(unknown)!r}")
    if not is_frame(texts):
        if columns or isinstance(labels, str):
            raise InputError(
                "columns are named, but the texts are not a DataFrame",
                expected="a DataFrame, or a dictionary of columns",
                received=type(texts).__name__,
                fix="pass the DataFrame as the first argument; or texts and labels as lists",
            )
        return texts, labels
    source = Frame(texts)
    text = columns.get("text")
    options = ColumnOptions(
        [text] if isinstance(text, str) else text, labels if isinstance(labels, str) else None,
        columns.get("label_separator"),
    )  # fmt: skip
    named = isinstance(labels, str)
    found, own = documents_of_source(source, options, labelled=named)
    return found, own if named else labels


def documents_of_source(source: Source, options: ColumnOptions, *, labelled: bool) -> tuple[list[str], list[list[str]]]:
    """Return the texts of a table's rows on one line each, and their labels.

    Args:
        source: the table.
        options: which columns hold texts and labels.
        labelled: whether there must be labels.
    """
    rows = [row for row in source.records() if isinstance(row, Record)]
    chosen, _ = choose_columns(
        source.name, source.columns, [row.cells for row in rows[:_SAMPLE]], options, labelled=labelled
    )
    return [" ".join(chosen.text_of(row.cells).split()) for row in rows], [chosen.labels_of(row.cells) for row in rows]
