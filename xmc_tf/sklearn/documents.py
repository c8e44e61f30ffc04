"""Documents of a classifier, checked by scikit-learn's conventions."""

from typing import Any, TypeAlias

import numpy as np
from sklearn.utils.validation import validate_data

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, Texts, as_features
from xmc_tf.models.documents import ReadDocuments

Documents: TypeAlias = Texts | Features


def checked_documents(estimator: Any, X: Any, read: ReadDocuments, *, fitting: bool) -> Documents:
    """Return documents as models take them; refuse another kind (texts or features) than that of ``fit``.

    ``n_features_in_`` and ``feature_names_in_`` are set on the estimator, or compared.
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
