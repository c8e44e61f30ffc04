"""Labels in the forms that scikit-learn's users have them, and predictions in the same form."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets

from xmc_tf.common.errors import InputError

# The four forms. A document has one label, a list of label names, or a row of an indicator matrix.
SINGLE, LISTS, DENSE, SPARSE = "one label per document", "lists of labels", "a dense matrix", "a sparse matrix"


@dataclass(frozen=True, eq=False)
class Targets:
    """The labels of a training, and the form in which documents have them.

    Args:
        form: one of the four forms.
        classes: the labels in the order of the columns: names, integers, or for a matrix the numbers of its columns.
        named: whether the labels have names of their own.
        dtype: number format of an indicator matrix.
    """

    form: str
    classes: np.ndarray
    named: bool = True
    dtype: Any = None

    @property
    def single(self) -> bool:
        """Return whether each document has exactly one label."""
        return self.form == SINGLE

    @property
    def names(self) -> list[str] | None:
        """The labels as texts, or None if they have no names."""
        return [str(label) for label in self.classes.tolist()] if self.named else None

    def shown(self, scores: csr_matrix, threshold: float) -> Any:
        """Return predictions in the form of the training labels.

        Args:
            scores: scores of the best labels, with sorted indices.
            threshold: labels with a smaller score are not predicted, unless each document has exactly one label.
        """
        if self.single:
            best = [row_best(scores, row) for row in range(scores.shape[0])]
            return self.classes[np.array(best, dtype=np.intp)]
        keep = scores.data >= threshold
        columns, indptr = scores.indices[keep], np.concatenate([[0], np.cumsum(keep)])[scores.indptr]
        if self.form == LISTS:
            rows = np.repeat(np.arange(scores.shape[0]), np.diff(indptr))
            ranked = columns[np.lexsort((-scores.data[keep], rows))]
            return [self.classes[ranked[a:b]].tolist() for a, b in pairwise(indptr)]
        matrix = csr_matrix((np.ones(len(columns), self.dtype), columns, indptr), shape=scores.shape)
        return matrix if self.form == SPARSE else matrix.toarray()


def read_targets(y: Any) -> tuple[Targets, csr_matrix]:
    """Return the labels of a training, and the matrix of documents × labels.

    Args:
        y: one label per document, a list of labels per document, or an indicator matrix, sparse or dense.
    """
    form, values, columns = _form_of(y)
    if form == SINGLE:
        classes, numbers = np.unique(values, return_inverse=True)
        targets, Y = Targets(form, classes), _matrix(numbers, np.arange(len(values) + 1), len(classes))
    elif form == LISTS:
        classes, numbers = np.unique(_as_array(values), return_inverse=True)
        targets, Y = Targets(form, classes), _matrix(numbers, _pointers(map(len, values)), len(classes))
    else:
        classes = np.arange(values.shape[1]) if columns is None else columns
        targets, Y = Targets(form, classes, columns is not None, values.dtype), _indicators(values)
    if not Y.nnz:
        raise InputError("y contains no label", expected="at least one label in at least one document")
    return targets, Y


def true_matrix(y: Any, targets: Targets) -> tuple[csr_matrix, np.ndarray]:
    """Return the known labels of test documents, and how many labels each has, known or not.

    Args:
        y: labels in any form.
        targets: the labels of the training.
    """
    form, values, _ = _form_of(y)
    if form in (DENSE, SPARSE):
        if values.shape[1] != len(targets.classes):
            raise InputError(
                "y does not fit the labels of the training",
                expected=f"{len(targets.classes):,} columns, as in fit",
                received=f"{values.shape[1]:,}",
            )
        matrix = _indicators(values)
        return matrix, np.diff(matrix.indptr)
    column_of = {label: column for column, label in enumerate(targets.classes.tolist())}
    lists = [[label] for label in np.asarray(values).tolist()] if form == SINGLE else values
    known = [[column_of[label] for label in labels if label in column_of] for labels in lists]
    columns = np.array([column for row in known for column in row], dtype=np.int64)
    return _matrix(columns, _pointers(map(len, known)), len(column_of)), np.array([len(labels) for labels in lists])


def row_best(scores: csr_matrix, row: int) -> int:
    """Return the best label of a document; of equal ones the first, as ``numpy.argmax`` does."""
    a, b = scores.indptr[row], scores.indptr[row + 1]
    return int(scores.indices[a + np.argmax(scores.data[a:b])]) if a < b else 0


def _form_of(y: Any) -> tuple[str, Any, np.ndarray | None]:
    """Return the form of labels, the labels, and the column names of a DataFrame with several columns."""
    if y is None:
        raise InputError("XMCClassifier requires y to be passed, but the target y is None", fix="fit(X, y)")
    if issparse(y):
        assert_all_finite(y.data, input_name="y")
        return SPARSE, y, None
    columns = np.asarray(y.columns) if hasattr(y, "columns") else None
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    elif not isinstance(y, list | tuple | np.ndarray):
        y = np.asarray(y)
    if not isinstance(y, np.ndarray):
        if any(_is_list(labels) for labels in y):
            rows = _indicator_rows(y)
            return (LISTS, _lists(y), None) if rows is None else (DENSE, rows, None)
        if any(isinstance(label, str) for label in y):
            _refuse_mixed(y)  # numpy would make "nan" of NaN
        y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
            "(n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=5,
        )
        y = y.ravel()
    if y.ndim == 2:
        return _table(y, columns)
    if y.ndim == 1 and y.dtype == object and any(_is_list(labels) for labels in y):
        return LISTS, _lists(y.tolist()), None
    if y.dtype == object:
        _refuse_mixed(y)
    check_classification_targets(y)
    assert_all_finite(y, input_name="y")
    return SINGLE, y, None


def _table(y: np.ndarray, columns: np.ndarray | None) -> tuple[str, Any, np.ndarray | None]:
    """Return a dense matrix of 0 and 1, or the rows of an array of names."""
    if y.dtype == object and not any(isinstance(value, str) for value in y.flat):
        y = y.astype(np.float64)
    if y.dtype.kind not in "biuf":
        return LISTS, _lists(y.tolist()), None
    assert_all_finite(y, input_name="y")
    if ((y != 0) & (y != 1)).any():
        value = y[(y != 0) & (y != 1)][0]
        raise InputError(
            "Unknown label type: y is a matrix, but not of indicators",
            expected="1 for labels that apply, 0 for others; or a list of labels per document",
            received=str(value),
            fix="y.tolist(), if the numbers are labels; a scipy.sparse matrix, if they are weights",
        )
    return DENSE, y, columns


def _indicator_rows(y: Any) -> np.ndarray | None:
    """Return the matrix whose rows are in a list, or None for lists of labels, which have no label twice."""
    if len({len(labels) if _is_list(labels) else -1 for labels in y}) > 1 or isinstance(y[0], set | frozenset):
        return None
    rows = np.asarray([list(labels) for labels in y])
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or not ((rows == 0) | (rows == 1)).all():
        return None
    # Among three numbers that are 0 or 1, two are equal.
    return rows if rows.shape[1] > 2 or (rows.shape[1] == 2 and (rows[:, 0] == rows[:, 1]).any()) else None


def _is_list(labels: Any) -> bool:
    return isinstance(labels, list | tuple | set | frozenset | np.ndarray)


def _lists(y: Iterable[Any]) -> list[list[Any]]:
    """Return the different labels of each document."""
    found = []
    for row, labels in enumerate(y):
        if isinstance(labels, str | bytes | Mapping) or not isinstance(labels, Iterable):
            raise InputError(
                f"y, document {row:,} has no list of labels",
                expected="a list of labels per document, or one label for every document",
                received=repr(labels)[:60],
                fix="[] for a document without labels",
            )
        found.append(list(dict.fromkeys(labels.tolist() if isinstance(labels, np.ndarray) else labels)))
    return found


def _as_array(documents: list[list[Any]]) -> np.ndarray:
    """Return the labels of all documents one after the other."""
    labels = [label for document in documents for label in document]
    whole = all(isinstance(label, Integral) for label in labels)
    array = np.empty(len(labels), dtype=np.int64 if whole else object)
    array[:] = labels
    if not whole:
        _refuse_mixed(labels)
    return array


def _refuse_mixed(labels: Iterable[Any]) -> None:
    """Refuse labels that cannot be sorted, such as names among which some are missing."""
    if not all(isinstance(label, str) for label in labels):
        raise InputError(
            "Unknown label type: y contains labels that are neither all names nor all integers",
            expected="names (str) only, or an array of integers",
            received=", ".join(sorted({type(label).__name__ for label in labels})),
            fix="str(label) for all of them; drop documents whose label is missing",
        )


def _indicators(values: Any) -> csr_matrix:
    """Return an indicator matrix with an entry of 1 for each label that applies."""
    matrix = csr_matrix(values, copy=True).astype(np.float32)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.data = np.ones_like(matrix.data)
    return matrix


def _pointers(lengths: Iterable[int]) -> np.ndarray:
    """Return where the labels of each document begin, and where the last ones end."""
    return np.cumsum([0, *lengths])


def _matrix(columns: np.ndarray, indptr: np.ndarray, count: int) -> csr_matrix:
    matrix = csr_matrix((np.ones(len(columns), np.float32), columns, indptr), shape=(len(indptr) - 1, count))
    matrix.sort_indices()
    return matrix
