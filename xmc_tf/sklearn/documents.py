"""The documents that a classifier is given: texts or features, in the forms that scikit-learn's users have them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils.validation import validate_data

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, TextFile, as_features

Documents: TypeAlias = TextFile | list[str] | list[bytes] | Features


def read_documents(estimator: Any, X: Any, *, fitting: bool) -> Documents:
    """Return documents in the form that the models take.

    Args:
        estimator: the classifier; ``n_features_in_`` and ``feature_names_in_`` are set on it, or compared.
        X: texts (a list, an array, a pandas Series, a ``TextFile``) or features (sparse, dense, a pandas DataFrame,
            ``Features``).
        fitting: whether these are the training documents.
    """
    texts = _texts(X)
    if fitting:
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                delattr(estimator, name)
    elif (texts is None) != hasattr(estimator, "n_features_in_"):
        kinds = ("texts", "features")
        raise InputError(
            f"X contains {kinds[texts is None]}",
            expected=f"{kinds[texts is not None]}, as in fit",
            received=kinds[texts is None],
        )
    if texts is not None:
        return texts
    if isinstance(X, Features):
        validate_data(estimator, X, reset=fitting, skip_check_array=True)
        return X
    return as_features(validate_data(estimator, X, reset=fitting, accept_sparse="csr", dtype=np.float32))


def _texts(X: Any) -> TextFile | list[str] | list[bytes] | None:
    """Return the texts, or None for features."""
    if isinstance(X, TextFile):
        return X
    if isinstance(X, str | bytes):
        raise InputError(
            "X is a single text", expected="a list of texts", received=repr(X[:40]), fix="put it into a list: [text]"
        )
    if isinstance(X, Features):
        return None
    values = X.to_numpy() if hasattr(X, "to_numpy") else X
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "OUST":
            return None
        if values.ndim != 1:
            _refuse_table(values)
            return None
        values = values.tolist()
    if not isinstance(values, Sequence) or not any(isinstance(text, str | bytes) for text in values):
        return None
    kind = bytes if isinstance(values[0], bytes) else str
    for row, text in enumerate(values):
        if not isinstance(text, kind):
            missing = text is None or text is np.nan
            raise InputError(
                f"X, document {row:,} is {'missing' if missing else 'not a text'}",
                expected=f"every document a {kind.__name__}",
                received=repr(text)[:60],
                fix='fill missing texts, for example X.fillna("")',
            )
    return list(values)


def _refuse_table(values: np.ndarray) -> None:
    """Refuse a table of texts; of several columns, nobody knows which contains the documents."""
    if values.dtype.kind != "O" or any(isinstance(value, str | bytes) for value in values.flat):
        raise InputError(
            "X is a table of texts",
            expected="one column of texts",
            received=f"an array of shape {values.shape}",
            fix='choose one column: X["text"] of a DataFrame, X[:, 0] of an array',
        )
