"""Read labels from matrices, DataFrames, lists and texts."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from xmc_tf.common.errors import InputError
from xmc_tf.data.in_memory import columns_of, is_frame, is_listing, listed, plain
from xmc_tf.tables.label_cells import apart_sentence, label_separator, labels_in, separator_sentence

_LOG = logging.getLogger(__name__)

# The four forms. A document has one label, a list of labels, or a row of a matrix.
SINGLE, LISTS, DENSE, SPARSE = "one label per document", "lists of labels", "a dense matrix", "a sparse matrix"
_SAMPLE = 1000


@dataclass(frozen=True, eq=False)
class LabelData:
    """The labels of documents, and the form in which they were passed."""

    form: str  # one of the four forms
    values: Any  # labels (None: missing), a list of the labels of each document, or a matrix
    columns: np.ndarray | None = None  # names of the columns of a dense matrix
    separator: str = ""  # between the labels of a document, if they were one text
    name: str = "labels"  # of the argument, for messages

    def __len__(self) -> int:
        return int(self.values.shape[0]) if self.is_matrix else len(self.values)

    @property
    def is_matrix(self) -> bool:
        return self.form in (DENSE, SPARSE)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix; for other forms, the number of documents."""
        return tuple(self.values.shape) if self.is_matrix else (len(self.values),)

    @property
    def lists(self) -> list[list[Any]]:
        """The labels of each document as a list of names or integers. Matrices have no such lists."""
        if self.form != SINGLE:
            return self.values
        return [[] if label is None else [label] for label in listed(self.values)]

    @property
    def names(self) -> list[list[str]]:
        """The labels of each document as strings; for a matrix with named columns, the column names."""
        if self.columns is not None:
            return [self.columns[row.astype(bool)].tolist() for row in np.asarray(self.values)]
        return [[str(label) for label in labels] for labels in self.lists]

    def matrix(self) -> Any:
        """Return a matrix of labels as a sparse matrix, in CSR or CSC format."""
        if self.form == SPARSE:
            return self.values if self.values.format in ("csr", "csc") else self.values.tocsr()
        return csr_matrix(np.asarray(self.values, np.float32))


def read_labels(labels: Any, separator: str | None = None, name: str = "labels") -> LabelData:
    """Read labels from a matrix or DataFrame of 0 and 1, lists, texts with separators, or one label per document."""
    if issparse(labels):
        return LabelData(SPARSE, labels, name=name)
    columns = None
    if hasattr(labels, "__array__") and not hasattr(labels, "__iter__"):
        labels = np.asarray(labels)
    if is_frame(labels):
        labels, columns = _of_frame(labels)
    if isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.shape[1] == 1:
        labels, columns = labels.ravel(), None
    if isinstance(labels, np.ndarray) and labels.ndim == 2:
        return _table(labels, columns, name)
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "biu":
        return LabelData(SINGLE, labels, name=name)
    values = listed(labels)
    if not is_listing(values) or isinstance(values, set | frozenset):
        raise InputError(
            f"{name} is not a list with the labels of each document",
            expected='labels of each document, such as [["food", "kitchen"], ["garden"]], or a matrix',
            received=f"{type(labels).__name__}: {labels!r}"[:80],
            fix='to name a column, pass a DataFrame: train(frame, "subjects")'
            if isinstance(labels, str) else "pass a list in the order of the documents",
        )  # fmt: skip
    values = [_whole(plain(value)) for value in values]
    if any(is_listing(value) for value in values):
        rows = _indicator_rows(values)
        return LabelData(LISTS, _lists(values, name), name=name) if rows is None else LabelData(DENSE, rows, name=name)
    refuse_mixed([value for value in values if value is not None], name)
    texts = [value for value in values if isinstance(value, str)]
    if separator is None and texts:
        separator = label_separator(texts[:_SAMPLE])
        if apart := apart_sentence(texts[:_SAMPLE], separator, "label_separator"):
            _LOG.warning("%s: %s", name, apart)
        if sentence := separator_sentence(texts, separator, "label_separator"):
            _LOG.info("guessed: %s: %s", name, sentence)
    if texts and separator:
        cut = [[] if value is None else labels_in(value, separator) for value in values]
        return LabelData(LISTS, cut, None, separator, name)
    return LabelData(SINGLE, [None if value == "" else value for value in values], name=name)


def refuse_mixed(labels: Iterable[Any], name: str = "labels") -> None:
    """Raise an error unless the labels are either all names or all integers."""
    kinds = {"str" if isinstance(one, str) else "int" if isinstance(one, Integral) else type(one) for one in labels}
    if not (kinds <= {"str"} or kinds <= {"int"}):
        shown = sorted(kind if isinstance(kind, str) else kind.__name__ for kind in kinds)
        raise InputError(
            f"Unknown label type: {name} contains labels that are neither all names nor all integers",
            expected="names (str) only, or integers only",
            received=", ".join(shown),
            fix="convert all labels with str(label)",
        )


def _of_frame(frame: Any) -> tuple[Any, np.ndarray | None]:
    """Convert a DataFrame to a matrix and its column names; a single column without ``to_numpy`` becomes a list."""
    names, columns = columns_of(frame)
    if len(columns) == 1 and not hasattr(frame, "to_numpy"):
        return listed(columns[0]), None
    matrix = frame.to_numpy() if hasattr(frame, "to_numpy") else np.array(list(map(listed, columns))).T
    return matrix, np.asarray(list(map(str, names)))


def _whole(value: Any) -> Any:
    """Convert 3.0 to 3, since pandas reads whole numbers as floats if a cell is missing; decode bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _table(values: np.ndarray, columns: np.ndarray | None, name: str) -> LabelData:
    """Read labels from a two-dimensional array: a matrix of 0 and 1, or rows of names."""
    if values.dtype == object and not any(isinstance(value, str) for value in values.flat):
        values = values.astype(np.float64)
    if columns is not None and all(isinstance(value, str) and value in ("0", "1") for value in values.flat):
        values = values.astype(np.float32)  # such as from read_csv(dtype=str)
    if values.dtype.kind not in "biuf":
        return LabelData(LISTS, _lists(values.tolist(), name), name=name)
    if not np.isfinite(values).all():
        raise InputError(f"{name} contains NaN or infinity", expected="1 for labels that apply, 0 for others")
    if ((values != 0) & (values != 1)).any():
        value = values[(values != 0) & (values != 1)][0]
        raise InputError(
            f"Unknown label type: {name} is a matrix with values other than 0 and 1",
            expected="1 for labels that apply, 0 for others; or a list of labels per document",
            received=str(value),
            fix=f"pass {name}.tolist() if the numbers are labels, or a scipy.sparse matrix if they are weights",
        )
    return LabelData(DENSE, values, columns, name=name)


def _indicator_rows(values: Sequence[Any]) -> np.ndarray | None:
    """Convert rows of 0 and 1 to a matrix. Return None for lists of labels, in which no label occurs twice."""
    if not all(isinstance(one, list | tuple | np.ndarray) and len(one) == len(values[0]) for one in values):
        return None
    rows = np.asarray([list(labels) for labels in values])
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or not ((rows == 0) | (rows == 1)).all():
        return None
    # Among three numbers that are 0 or 1, two are equal.
    return rows if rows.shape[1] > 2 or (rows.shape[1] == 2 and (rows[:, 0] == rows[:, 1]).any()) else None


def _lists(values: Iterable[Any], name: str) -> list[list[Any]]:
    """Return the labels of each document as a list without duplicates."""
    found: list[list[Any]] = []
    for row, labels in enumerate([] if one is None else one for one in values):
        # Iterators must be read only once.
        if not is_listing(labels) or (isinstance(labels, list) and any(isinstance(one, Mapping) for one in labels)):
            raise InputError(
                f"{name}: document {row:,} has no list of labels",
                expected="a list of labels per document, or one label for every document",
                received=repr(labels)[:60],
                fix="use [] for a document without labels",
            )
        each = (_whole(plain(label)) for label in listed(labels))
        found.append(list(dict.fromkeys(label for label in each if label is not None and label != "")))
    refuse_mixed((label for labels in found for label in labels), name)
    return found
