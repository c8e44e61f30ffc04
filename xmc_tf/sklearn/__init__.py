"""A scikit-learn classifier for texts or features with very many labels.

Example:
    >>> from xmc_tf.sklearn import XMCClassifier
    >>> classifier = XMCClassifier().fit(texts, labels)  # labels: a list of names for each text
    >>> classifier.top_k(["gradient of a sparse matrix"], k=3)
    [[('scipy.sparse', …), …]]
"""

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import pip_install

try:
    from sklearn.utils.validation import validate_data as _needed  # noqa: F401  scikit-learn 1.6 is the first with it
except ImportError as error:
    raise InputError(
        "xmc_tf.sklearn needs scikit-learn",
        expected="scikit-learn 1.6 or later",
        received=str(error),
        fix=pip_install("sklearn"),
    ) from None

from xmc_tf.sklearn.classifier import XMCClassifier

__all__ = ["XMCClassifier"]
