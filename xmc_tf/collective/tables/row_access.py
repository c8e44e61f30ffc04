"""Reading and writing a range of a variable's rows without a copy of the others.

``variable[low:high]`` reads the whole variable first, which copies it after a sparse update.
``variable[low:high].assign(rows)`` holds that slice during the assignment, so it too copies the whole variable
(tests/collective/test_memory.py).
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
    """Return the numpy type of the variable's values."""
    return np.dtype(variable.dtype.as_numpy_dtype)
