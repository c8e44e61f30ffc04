"""Sums of rows with the same number, such as the gradients of a row that a batch looks up several times."""

from functools import cache

import numpy as np
import tensorflow as tf

from xmc_tf.collective.engines.aligned import aligned_array
from xmc_tf.collective.tables.kernels import add_rows, unique_by_owner


class UniqueIds:
    """The distinct values of int64 numbers, ordered by owner and then by first occurrence. ``bounds`` holds the first
    number of each owner from the second on.
    """

    def __init__(self, numbers: np.ndarray, bounds: np.ndarray = np.empty(0, np.int64)) -> None:  # noqa: B008
        length = len(numbers)
        places = np.full(2 ** (2 * length + 1).bit_length(), -1, np.int32)
        self.values, owners = np.empty(length, np.int64), np.empty(length, np.int64)
        self.positions, self.counts = np.empty(length, np.int32), np.zeros(len(bounds) + 1, np.int32)
        found = unique_by_owner(numbers, bounds, places, self.values, owners, self.positions, self.counts)
        self.values = self.values[:found]


class EachId:
    """All numbers, including repeated ones, ordered by owner. The attributes are those of ``UniqueIds``."""

    def __init__(self, numbers: np.ndarray, bounds: np.ndarray) -> None:
        owners = np.searchsorted(bounds, numbers, side="right")
        order = np.argsort(owners, kind="stable")
        self.values, self.positions = numbers[order], np.empty(len(numbers), np.int32)
        self.positions[order] = np.arange(len(numbers), dtype=np.int32)
        self.counts = np.bincount(owners, minlength=len(bounds) + 1).astype(np.int32)


def sum_by_number(numbers: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the distinct numbers and, for each of them, the sum of its rows of ``values``."""
    if not _compiled(values):
        unique, positions = tf.unique(numbers)
        return unique, tf.math.unsorted_segment_sum(values, positions, tf.size(unique))

    def summed(numbers: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = UniqueIds(numbers.astype(np.int64, copy=False))
        sums = _zeros(len(found.values), values.shape[1])
        add_rows(values, np.arange(len(values), dtype=np.int32), found.positions, sums)
        return found.values, sums

    unique, sums = tf.numpy_function(summed, [numbers, values], [tf.int64, tf.float32])
    unique.set_shape([None])
    sums.set_shape([None, values.shape[1]])
    return unique, sums


def sum_rows(values: tf.Tensor, put: tf.Tensor, count: tf.Tensor, take: tf.Tensor | None = None) -> tf.Tensor:
    """Return ``[count, width]`` with row ``take[i]`` (default: i) of ``values`` added to row ``put[i]``, for each i."""
    if not _compiled(values):
        return tf.math.unsorted_segment_sum(values if take is None else tf.gather(values, take), put, count)

    def summed(values: np.ndarray, take: np.ndarray, put: np.ndarray, count: np.ndarray) -> np.ndarray:
        sums = _zeros(int(count), values.shape[1])
        add_rows(values, take, put.astype(np.int32, copy=False), sums)
        return sums

    every = tf.range(tf.shape(values)[0]) if take is None else take
    sums = tf.numpy_function(summed, [values, every, put, count], tf.float32)
    sums.set_shape([None, values.shape[1]])
    return sums


def _zeros(count: int, width: int) -> np.ndarray:
    sums = aligned_array((count, width), np.float32)
    sums[:] = 0.0
    return sums


def _compiled(values: tf.Tensor) -> bool:
    """Return whether to sum these rows with compiled code, which does not run on GPUs."""
    return not has_gpu() and values.dtype == tf.float32 and values.shape.rank == 2 and values.shape[1] is not None


@cache
def has_gpu() -> bool:
    return bool(tf.config.list_logical_devices("GPU"))
