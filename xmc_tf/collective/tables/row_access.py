"""Reading and writing a range of a variable's rows without a copy of the others.

``variable[low:high]`` reads the whole variable first, which copies it after a sparse update.
``variable[low:high].assign(rows)`` holds that slice during the assignment, so it too copies the whole variable
(tests/collective/test_memory.py).
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class RowRange:
    """Some adjacent rows of a variable, for ``get_rows`` and ``set_rows``.

    Args:
        variable: the variable.
        start: the first row.
        count: the number of rows.
    """

    variable: tf.Variable
    start: int
    count: int

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of the rows."""
        return tf.TensorShape([self.count, *self.variable.shape[1:]])

    @property
    def dtype(self) -> tf.DType:
        """The type of the values."""
        return self.variable.dtype


@dataclass(frozen=True)
class RowsInOrder:
    """Some rows of a variable in an order of their own, for ``get_rows`` and ``set_rows``.

    Args:
        variable: the variable.
        order: the numbers of the rows.
    """

    variable: tf.Variable
    order: np.ndarray

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of the rows."""
        return tf.TensorShape([len(self.order), *self.variable.shape[1:]])

    @property
    def dtype(self) -> tf.DType:
        """The type of the values."""
        return self.variable.dtype


@dataclass(frozen=True)
class HostRows:
    """Rows in an array, for ``get_rows``.

    Args:
        array: the array.
    """

    array: np.ndarray

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of the rows."""
        return tf.TensorShape(self.array.shape)

    @property
    def dtype(self) -> tf.DType:
        """The type of the values."""
        return tf.as_dtype(self.array.dtype)


# What a checkpoint or an export reads rows from.
RowSource: TypeAlias = tf.Variable | RowRange | RowsInOrder | HostRows


def get_rows(variable: RowSource, low: int, high: int) -> tf.Tensor:
    """Return the rows ``[low, high)``."""
    if isinstance(variable, RowRange):
        return get_rows(variable.variable, variable.start + low, variable.start + high)
    if isinstance(variable, RowsInOrder):
        return tf.gather(variable.variable, variable.order[low:high])
    if isinstance(variable, HostRows):
        return tf.constant(variable.array[low:high])
    return tf.gather(variable, tf.range(low, high))


def set_rows(variable: tf.Variable | RowRange | RowsInOrder, low: int, rows: tf.Tensor | np.ndarray) -> None:
    """Write rows from ``low`` on, in place."""
    if isinstance(variable, RowRange):
        set_rows(variable.variable, variable.start + low, rows)
        return
    numbers = tf.range(low, low + int(rows.shape[0]))
    if isinstance(variable, RowsInOrder):
        variable, numbers = variable.variable, variable.order[low : low + int(rows.shape[0])]
    variable.scatter_update(tf.IndexedSlices(tf.convert_to_tensor(rows, variable.dtype), numbers))


def row_type(variable: Any) -> np.dtype:
    """Return the numpy type of the variable's values."""
    return np.dtype(variable.dtype.as_numpy_dtype)
