"""The labels of a classifier, and the conversion of predictions to the same form."""

import warnings
from collections.abc import Iterable
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
from xmc_tf.models.labels import binary
from xmc_tf.tables.label_forms import LISTS, SINGLE, SPARSE, LabelData, refuse_mixed


@dataclass(frozen=True, eq=False)
class Targets:
    """The labels that a classifier was trained on, and the form in which they were passed."""

    form: str
    classes: np.ndarray
    named: bool = True
    dtype: Any = None
    separator: str = ""

    @property
    def single(self) -> bool:
        return self.form == SINGLE

    @property
    def names(self) -> list[str] | None:
        """The labels as strings, or None if they have no names."""
        return [str(label) for label in self.classes.tolist()] if self.named else None

    def shown(self, scores: csr_matrix, threshold: float) -> Any:
        """Return predictions in the form of the training labels; ``scores`` must have sorted indices.

        Labels that score below the threshold are left out, unless ``fit`` received one label per document (not lists).
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


def read_targets(found: LabelData) -> tuple[Targets, csr_matrix]:
    """Return the labels of the training documents, and their matrix of documents × labels."""
    form, values = found.form, found.values
    if form == SINGLE:
        classes, numbers = np.unique(np.asarray([one for one in values if one is not None]), return_inverse=True)
        targets = Targets(form, classes)
        Y = _matrix(numbers, _pointers(one is not None for one in values), len(classes))
    elif form == LISTS:
        classes, numbers = np.unique(_as_array(values), return_inverse=True)
        targets = Targets(form, classes, separator=found.separator)
        Y = _matrix(numbers, _pointers(map(len, values)), len(classes))
    else:
        columns = found.columns
        classes = np.arange(values.shape[1]) if columns is None else columns
        targets, Y = Targets(form, classes, columns is not None, values.dtype), binary(values)
    if not Y.nnz:
        raise InputError("y contains no label", expected="at least one label in at least one document")
    return targets, Y


def true_matrix(found: LabelData, targets: Targets) -> tuple[csr_matrix, np.ndarray]:
    """Return the matrix of known labels of test documents, and each document's number of labels, known or unknown."""
    if found.is_matrix:
        if found.values.shape[1] != len(targets.classes):
            raise InputError(
                "y does not fit the training labels", expected=f"{len(targets.classes):,} columns, as in fit",
                received=f"{found.values.shape[1]:,}",
            )  # fmt: skip
        matrix = binary(found.values)
        return matrix, np.diff(matrix.indptr)
    column_of = {label: column for column, label in enumerate(targets.classes.tolist())}
    lists = found.lists
    known = [[column_of[label] for label in labels if label in column_of] for labels in lists]
    columns = np.array([column for row in known for column in row], dtype=np.int64)
    return _matrix(columns, _pointers(map(len, known)), len(column_of)), np.array([len(labels) for labels in lists])


def check_targets(y: Any) -> Any:
    """Return the labels, after the checks that scikit-learn requires for arrays."""
    if y is None:
        raise InputError("XMCClassifier requires y to be passed, but the target y is None", fix="fit(X, y)")
    if issparse(y):
        assert_all_finite(y.data, input_name="y")
        return y
    values = y.to_numpy() if hasattr(y, "to_numpy") else y
    if isinstance(values, np.ndarray):
        if values.ndim == 2 and values.shape[1] == 1 and isinstance(y, np.ndarray):
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
                "(n_samples,), for example using ravel().", DataConversionWarning, stacklevel=4,
            )  # fmt: skip
        if values.dtype.kind in "biufc":
            # In a Series, NaN stands for a missing label.
            assert_all_finite(values, input_name="y", allow_nan=values is not y)
            if values.ndim == 1 or values.shape[1] == 1:
                check_classification_targets(values[~np.isnan(values)])
    return y


def row_best(scores: csr_matrix, row: int) -> int:
    """Return the best label of a document (0 if it has none). Ties go to the first label, as in ``numpy.argmax``."""
    a, b = scores.indptr[row], scores.indptr[row + 1]
    return int(scores.indices[a + np.argmax(scores.data[a:b])]) if a < b else 0


def _as_array(documents: list[list[Any]]) -> np.ndarray:
    """Concatenate the labels of all documents into one array."""
    labels = [label for document in documents for label in document]
    whole = all(isinstance(label, Integral) for label in labels)
    array = np.empty(len(labels), dtype=np.int64 if whole else object)
    array[:] = labels
    if not whole:
        refuse_mixed(labels, "y")
    return array


def _pointers(lengths: Iterable[int]) -> np.ndarray:
    """Return the start and end positions of the documents' labels in one array."""
    return np.cumsum([0, *lengths])


def _matrix(columns: np.ndarray, indptr: np.ndarray, count: int) -> csr_matrix:
    matrix = csr_matrix((np.ones(len(columns), np.float32), columns, indptr), shape=(len(indptr) - 1, count))
    matrix.sort_indices()
    return matrix
