"""Predictions from disk."""

import logging
from pathlib import Path

import numpy as np
import scipy.sparse as smat

from xmc_tf.data import load_matrix


def load_prediction(path: str | Path, name: str = "the prediction") -> smat.spmatrix | np.ndarray:
    """Read a prediction as ``load_matrix`` reads a matrix.

    The rows of a prediction lie sorted by score, and that their labels are not sorted is worth no remark.

    Args:
        path: documents × labels, .npz or .npy.
        name: what it is, for the messages.
    """
    logger = logging.getLogger("xmc_tf.data")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        return load_matrix(path, name=name)
    finally:
        logger.setLevel(level)
