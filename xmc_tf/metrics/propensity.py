"""Inverse propensities of labels by the model of Jain et al. (2016)."""

import numpy as np

from xmc_tf.common.errors import InputError


def inverse_propensity(frequency: np.ndarray, documents: int, a: float = 0.55, b: float = 1.5) -> np.ndarray:
    """Return the weight of finding each label: large for rare labels, towards 1 for frequent ones.

    ``1 / p = 1 + C (n + b)^-a`` with ``C = (ln N - 1)(b + 1)^a``, for a label of n among N training documents.

    Args:
        frequency: the number of training documents of every label.
        documents: the number of training documents.
        a: 0.55 in general; 0.5 for Wikipedia, 0.6 for Amazon in the extreme classification repository.
        b: 1.5 in general; 0.4 for Wikipedia, 2.6 for Amazon.

    Returns:
        One weight per label, at least 1.
    """
    if documents < 1:
        raise InputError("propensities need training documents", expected="at least 1")
    if b <= 0:
        raise InputError("the propensity parameter B is too small", expected="above 0", received=str(b))
    # With fewer than three documents, ln N - 1 and so the weights would be negative.
    c = max(np.log(documents) - 1.0, 0.0) * (b + 1.0) ** a
    return 1.0 + c * (np.asarray(frequency, dtype=np.float64) + b) ** -a
