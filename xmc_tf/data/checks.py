"""Check that the user's inputs are consistent with each other."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, issparse

from xmc_tf.common.errors import InputError
from xmc_tf.data.array_checks import check_finite, check_indices, check_pointers, position_of
from xmc_tf.data.features import Features

_LOG = logging.getLogger(__name__)
_NAMES = {"texts": "texts", "X": "the features X", "Y": "the labels Y", "names": "label names"}


def check_pair(first: Any, second: Any, first_name: str = "X", second_name: str = "Y") -> None:
    """Raise an error if two inputs (texts, matrices or `Features`) have different numbers of documents."""
    rows, others = nr_rows(first), nr_rows(second)
    if rows != others and rows in getattr(second, "shape", ())[1:]:
        raise InputError(
            f"{second_name}: the matrix is transposed",
            expected=f"one row for each of the {rows:,} documents in {first_name}",
            received=f"{others:,} rows and {rows:,} columns",
            fix="save it as matrix.T.tocsr() with scipy.sparse.save_npz",
        )
    if rows != others:
        raise InputError(
            f"{first_name} and {second_name} have different numbers of documents",
            expected=f"as many documents in {second_name} as in {first_name}, {rows:,}",
            received=f"{others:,}",
            fix="compute both from the same documents in the same order",
        )


def check_training_input(
    *,
    Y: csr_matrix | csc_matrix,
    X: Any = None,
    texts: Any = None,
    names: Sequence[str] | None = None,
    files: Mapping[str, Any] | None = None,
    loaded: bool = False,
) -> None:
    """Check all training inputs.

    ``files`` gives the file names to show in messages; ``loaded`` skips the checks that `load_matrix` has already done.
    """
    called = {key: f"{name} ({files[key]})" if files and files.get(key) else name for key, name in _NAMES.items()}
    check_labels(Y, called["Y"], loaded)
    if X is None and texts is None:
        raise InputError("there are no training inputs", expected="texts, features or both", received="neither")
    if texts is not None:
        check_pair(texts, Y, called["texts"], called["Y"])
    if X is not None:
        check_features(X, called["X"], loaded)
        check_pair(X, Y, called["X"], called["Y"])
    if names is not None and len(names) != Y.shape[1]:
        raise InputError(
            f"{called['names']} and {called['Y']} do not fit together",
            expected=f"a name for each of the {Y.shape[1]:,} labels (columns)",
            received=f"{len(names):,} names",
            fix="give one name per column, in the order of the columns",
        )
    for axis, what in ((0, "labels have no document"), (1, "documents have no label")):
        if idle := np.count_nonzero(Y.getnnz(axis=axis) == 0):
            _LOG.info("%s: %s of %s %s", called["Y"], f"{idle:,}", f"{Y.shape[1 - axis]:,}", what)


def check_prediction_input(X: Any, nr_features: int, name: str = "the features X") -> None:
    """Raise an error if X does not have the number of features that the model was trained on."""
    check_features(X, name)
    if X.shape[1] != nr_features:
        raise InputError(
            f"{name} do not fit the model",
            expected=f"{nr_features:,} features (columns), as in training",
            received=f"{X.shape[1]:,}",
            fix="compute them with the vectorizer that was fitted on the training texts",
        )


def check_validation_input(Y: Any, nr_labels: int, name: str = "the labels Y") -> None:
    """Raise an error if Y does not have the number of labels that the model was trained on."""
    check_labels(Y, name)
    if Y.shape[1] != nr_labels:
        raise InputError(
            f"{name} do not fit the training labels",
            expected=f"{nr_labels:,} labels (columns), as in training",
            received=f"{Y.shape[1]:,}",
            fix="create the matrix with the same columns as the training labels",
        )


def check_labels(Y: Any, name: str = "the labels Y", loaded: bool = False) -> None:
    """Check that a label matrix is sparse, has at least one entry, and contains only positive values."""
    if not issparse(Y) or Y.format not in ("csr", "csc"):
        raise InputError(
            f"{name} are not a CSR or CSC matrix",
            expected="a sparse matrix of documents × labels, in CSR or CSC format",
            received=_kind(Y),
            fix="save scipy.sparse.csr_matrix(Y) with scipy.sparse.save_npz",
        )
    if not loaded:
        _check_sparse(Y, name, "labels")
    if not Y.nnz:
        raise InputError(
            f"{name} contain no label",
            expected="documents (rows) by labels (columns), at least one entry",
            received=f"{Y.shape[0]:,} rows, {Y.shape[1]:,} columns, no entry",
            fix="check how the matrix was computed",
        )
    if (least := Y.data.min()) <= 0:
        entry = int(np.argmax(Y.data <= 0))
        row, column = position_of(Y, entry)
        raise InputError(
            f"{name}: row {row:,}, column {column:,} (counted from 0) is {Y.data[entry]:g}",
            expected="values above 0: 1, or how relevant the label is; no entry for labels that do not apply",
            received=f"values down to {least:g}",
            fix="Y.data = abs(Y.data), or Y.data[Y.data < 0] = 0, whichever is right; then Y.eliminate_zeros()",
        )


def check_features(X: Any, name: str = "the features X", loaded: bool = False) -> None:
    """Check that features are a non-empty matrix of finite values."""
    given = [X.sparse, X.dense] if isinstance(X, Features) else [X]
    parts: list[Any] = [part for part in given if part is not None or X is None]
    for part in parts:
        is_array = isinstance(part, np.ndarray) and part.ndim == 2 and part.dtype.kind in "fiub"
        if not is_array and not (issparse(part) and part.format in ("csr", "csc")):
            raise InputError(
                f"{name} are not a supported matrix", expected="CSR, CSC or a numeric array", received=_kind(part)
            )
        if issparse(part) and not loaded:
            _check_sparse(part, name, "features")
        elif not loaded:
            check_finite(part, name)
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise InputError(
            f"{name} are empty",
            expected="at least one document (row) and one feature (column)",
            received=f"{X.shape[0]:,} rows, {X.shape[1]:,} columns",
            fix="check how the matrix was computed; a min_df that is too high leaves no features",
        )


def nr_rows(documents: Any) -> int:
    """Return the number of documents in a list of texts, a matrix or `Features`."""
    return int(documents.shape[0]) if hasattr(documents, "shape") else len(documents)


def _check_sparse(matrix: Any, name: str, columns: str) -> None:
    by_row = matrix.format == "csr"
    nr_major, nr_minor = matrix.shape if by_row else matrix.shape[::-1]
    check_pointers(matrix.indptr, nr_major, len(matrix.indices), name)
    what = f"{name} ({matrix.shape[0]:,} rows, {matrix.shape[1]:,} {columns})"
    check_indices(matrix.indptr, matrix.indices, nr_minor, what, "row" if by_row else "column")
    check_finite(matrix, name)


def _kind(thing: Any) -> str:
    if issparse(thing):
        return f"a sparse matrix in {thing.format} format"
    return f"an array of shape {thing.shape}" if isinstance(thing, np.ndarray) else type(thing).__name__
