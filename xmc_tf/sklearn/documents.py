"""The documents that a classifier is given, as scikit-learn's conventions have it."""

from typing import Any, TypeAlias

import numpy as np
from sklearn.utils.validation import validate_data

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, Texts, as_features
from xmc_tf.models.documents import ReadDocuments

Documents: TypeAlias = Texts | Features


def checked_documents(estimator: Any, X: Any, read: ReadDocuments, *, fitting: bool) -> Documents:
    """Return documents in the form that the models take, of the kind that the classifier was fitted to.

    Args:
        estimator: the classifier; ``n_features_in_`` and ``feature_names_in_`` are set on it, or compared.
        X: the documents as they came, for scikit-learn's checks of features.
        read: the documents.
        fitting: whether these are the training documents.
    """
    if fitting:
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                delattr(estimator, name)
    elif (read.texts is None) != hasattr(estimator, "n_features_in_"):
        kinds = ("texts", "features")
        raise InputError(
            f"X contains {kinds[read.texts is None]}",
            expected=f"{kinds[read.texts is not None]}, as in fit",
            received=kinds[read.texts is None],
        )
    if read.texts is not None:
        return read.texts
    if isinstance(X, Features):
        validate_data(estimator, X, reset=fitting, skip_check_array=True)
        return X
    return as_features(validate_data(estimator, X, reset=fitting, accept_sparse="csr", dtype=np.float32))
