"""Loading of predictions."""

import logging
from pathlib import Path

import numpy as np
import scipy.sparse as smat

from xmc_tf.data import load_matrix


def load_prediction(path: str | Path, name: str = "the prediction") -> smat.spmatrix | np.ndarray:
    """Load a prediction with ``load_matrix``.

    Rows of predictions are sorted by score, so there is no warning about unsorted labels.

    Args:
        path: documents × labels, .npz or .npy.
        name: its name in messages.
    """
    logger = logging.getLogger("xmc_tf.data")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        return load_matrix(path, name=name)
    finally:
        logger.setLevel(level)
