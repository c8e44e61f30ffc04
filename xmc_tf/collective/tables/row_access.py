"""Reading and writing a range of a variable's rows without a copy of the others.

``variable[low:high]`` reads the whole variable first, which copies it after a sparse update.
``variable[low:high].assign(rows)`` holds that slice during the assignment, so it too copies the whole variable
(tests/collective/test_memory.py).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class SomeRows:
    """Some rows of a variable, or of an array that is only read, in an order of their own."""

    source: tf.Variable | np.ndarray
    order: range | np.ndarray

    @property
    def shape(self) -> tf.TensorShape:
        return tf.TensorShape([len(self.order), *self.source.shape[1:]])

    @property
    def dtype(self) -> tf.DType:
        return tf.as_dtype(self.source.dtype)


def get_rows(rows: tf.Variable | SomeRows, low: int, high: int) -> tf.Tensor:
    """Return the rows ``[low, high)``; those of a variable of bfloat16 as float32, which NumPy has."""
    source, numbers = _of(rows, low, high)
    if isinstance(source, np.ndarray):
        return tf.constant(source[numbers])
    found = tf.gather(source, numbers)
    return tf.cast(found, tf.float32) if source.dtype == tf.bfloat16 else found


def set_rows(rows: tf.Variable | SomeRows, low: int, values: tf.Tensor | np.ndarray) -> None:
    """Write rows from ``low`` on, in place."""
    variable, numbers = _of(rows, low, low + int(values.shape[0]))
    variable.scatter_update(tf.IndexedSlices(tf.cast(values, variable.dtype), numbers))


def _of(rows: tf.Variable | SomeRows, low: int, high: int) -> tuple[Any, np.ndarray]:
    if isinstance(rows, SomeRows):
        return rows.source, np.asarray(rows.order[low:high])
    return rows, np.arange(low, high)


def row_type(variable: Any) -> np.dtype:
    """Return the NumPy type of the rows that ``get_rows`` returns."""
    return np.dtype(np.float32 if variable.dtype == tf.bfloat16 else variable.dtype.as_numpy_dtype)
