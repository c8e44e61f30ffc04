"""Initial values of a sharded table, drawn in blocks of rows. They depend on the seed and the row, not on the ranks."""

import logging
import math
import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.common.errors import InputError

log = logging.getLogger(__name__)

BLOCK_ROWS = 1024

# (seed of the block, number of rows) -> values [rows, dim]
Draw: TypeAlias = Callable[[tf.Tensor, int], tf.Tensor]
# (first row, row after the last) -> values of these rows
Values: TypeAlias = Callable[[int, int], tf.Tensor]

# A Keras initializer or its name, a matrix of values (may be a memory map), or a function from row numbers to values.
Initializer: TypeAlias = str | keras.initializers.Initializer | np.ndarray | Callable[[np.ndarray], np.ndarray]


def first_values(initializer: Initializer, name: str, rows: int, dim: int, seed: int) -> Values | None:
    """Return a function that maps ``(start, stop)`` to the initial values of these rows, or None if all are zero."""
    if isinstance(initializer, np.ndarray):
        return _rows_of(initializer, name, rows, dim)
    if isinstance(initializer, str):
        initializer = keras.initializers.get(initializer)
    if isinstance(initializer, keras.initializers.Initializer):
        if type(initializer).__call__ is keras.initializers.Zeros.__call__:
            return None
        if (draw := _draw(initializer, rows, dim)) is not None:
            return _in_blocks(draw, table_seed(name, seed, initializer), rows)
        log.info("table %r: %s computes all rows, on each rank", name, type(initializer).__name__)
        with tf.init_scope():
            return _rows_of(np.asarray(initializer((rows, dim), dtype="float32")), name, rows, dim)
    return lambda start, stop: tf.cast(initializer(np.arange(start, stop)), tf.float32)


class FunctionInitializer(keras.initializers.Initializer):
    """A Keras initializer that calls a function with a shape and a type."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        return self.function(shape, dtype=dtype)


def _rows_of(matrix: np.ndarray, name: str, rows: int, dim: int) -> Values:
    if matrix.shape != (rows, dim):
        raise InputError(
            f"the initial values of table {name!r} have the wrong shape",
            expected=f"({rows}, {dim})",
            received=str(matrix.shape),
        )
    return lambda start, stop: tf.constant(np.asarray(matrix[start:stop], dtype=np.float32))


def table_seed(name: str, seed: int, initializer: keras.initializers.Initializer) -> int:
    """Return a hash of the user's seed, the table's name, and the initializer's seed."""
    own = initializer.get_config().get("seed") or 0
    return zlib.crc32(f"{name}/{seed}/{own}".encode()) & 0x7FFFFFFF


def _in_blocks(draw: Draw, table_seed: int, rows: int) -> Values:
    def values(start: int, stop: int) -> tf.Tensor:
        first, last = start // BLOCK_ROWS, -(-stop // BLOCK_ROWS)
        drawn = [draw(tf.constant([table_seed, block], tf.int32), BLOCK_ROWS) for block in range(first, last)]
        whole = tf.concat(drawn, axis=0) if len(drawn) != 1 else drawn[0]
        offset = first * BLOCK_ROWS
        return whole[start - offset : min(stop, rows) - offset]

    return values


def _draw(initializer: keras.initializers.Initializer, rows: int, dim: int) -> Draw | None:
    """Return a stateless version of an initializer that draws rows independently, or None for other initializers."""
    config, kind = initializer.get_config(), type(initializer).__call__  # a subclass may draw differently
    of = keras.initializers
    if kind is of.RandomUniform.__call__:
        return _uniform(dim, config["minval"], config["maxval"])
    if kind is of.RandomNormal.__call__:
        return _normal(dim, config["mean"], config["stddev"], truncated=False)
    if kind is of.TruncatedNormal.__call__:
        return _normal(dim, config["mean"], config["stddev"], truncated=True)
    if kind is of.Ones.__call__:
        return lambda _, count: tf.ones([count, dim])
    if kind is of.Constant.__call__ and np.ndim(initializer.value) == 0:
        return lambda _, count: tf.fill([count, dim], tf.cast(initializer.value, tf.float32))
    if kind is of.VarianceScaling.__call__:
        return _variance_scaling(initializer, rows, dim)
    return None


def _uniform(dim: int, low: float, high: float) -> Draw:
    return lambda seed, count: tf.random.stateless_uniform([count, dim], seed, low, high, alg="philox")


def _normal(dim: int, mean: float, stddev: float, truncated: bool) -> Draw:
    draw = tf.random.stateless_truncated_normal if truncated else tf.random.stateless_normal
    return lambda seed, count: draw([count, dim], seed, mean, stddev, alg="philox")


def _variance_scaling(initializer: keras.initializers.VarianceScaling, rows: int, dim: int) -> Draw:
    """Return Keras' variance scaling with the fan-in and fan-out of the whole table rather than a shard."""
    scale, mode, distribution = initializer.scale, initializer.mode, initializer.distribution
    fan = {"fan_in": rows, "fan_out": dim, "fan_avg": (rows + dim) / 2}[mode]
    variance = scale / max(1.0, fan)
    if distribution == "uniform":
        limit = math.sqrt(3.0 * variance)
        return _uniform(dim, -limit, limit)
    if distribution == "untruncated_normal":
        return _normal(dim, 0.0, math.sqrt(variance), truncated=False)
    # Truncation at two standard deviations reduces the variance; Keras' constant corrects this.
    return _normal(dim, 0.0, math.sqrt(variance) / 0.87962566103423978, truncated=True)
