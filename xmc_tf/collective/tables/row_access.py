"""Some rows of a variable, read and written without the others.

``variable[low:high]`` reads a whole variable before it takes the slice, which means a copy of it once a sparse update
has touched it; and ``variable[low:high].assign(rows)`` holds on to that slice meanwhile, so that it, too, copies the
whole variable first (tests/collective/test_memory.py).
"""

from typing import Any

import numpy as np
import tensorflow as tf


def get_rows(variable: tf.Variable, low: int, high: int) -> tf.Tensor:
    """Return the rows ``[low, high)``."""
    return tf.gather(variable, tf.range(low, high))


def set_rows(variable: tf.Variable, low: int, rows: tf.Tensor | np.ndarray) -> None:
    """Write rows from ``low`` on, in place."""
    numbers = tf.range(low, low + int(rows.shape[0]))
    variable.scatter_update(tf.IndexedSlices(tf.convert_to_tensor(rows, variable.dtype), numbers))


def row_type(variable: Any) -> np.dtype:
    """What numpy calls the variable's numbers."""
    return np.dtype(variable.dtype.as_numpy_dtype)
