"""Initial values of the rows of a growing table, which depend on the seed and the id alone.

Each number of a row is drawn from a hash of the id's hash, the seed and the column, so that neither the order in which
ids arrive nor the number of ranks matters.
"""

from collections.abc import Callable

import keras
import numpy as np
from scipy.special import ndtr, ndtri

from xmc_tf.collective.growing import kernels
from xmc_tf.collective.tables.initial_values import table_seed
from xmc_tf.common.errors import InputError

# Hashes of ids -> their rows.
InitialRows = Callable[[np.ndarray], np.ndarray]


def initial_rows(initializer: str | keras.initializers.Initializer, name: str, dim: int, seed: int) -> InitialRows:
    """Return a function from hashes of ids to initial rows; tables of different names get different values."""
    made = keras.initializers.get(initializer)
    transform = _transform(made, name)
    own = np.uint64(table_seed(name, seed, made))

    def rows(hashes: np.ndarray) -> np.ndarray:
        drawn = np.empty((len(hashes), dim), np.float64)
        kernels.draw(hashes, own, drawn)
        return transform(drawn).astype(np.float32)

    return rows


def _transform(initializer: keras.initializers.Initializer, name: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that turns uniform numbers between 0 and 1 into the initializer's."""
    config = initializer.get_config()
    if isinstance(initializer, keras.initializers.Zeros):
        return np.zeros_like
    if isinstance(initializer, keras.initializers.Ones):
        return np.ones_like
    if isinstance(initializer, keras.initializers.Constant):
        return lambda drawn: np.full_like(drawn, initializer.value)
    if isinstance(initializer, keras.initializers.RandomUniform):
        return lambda drawn: config["minval"] + drawn * (config["maxval"] - config["minval"])
    if isinstance(initializer, keras.initializers.RandomNormal):
        return lambda drawn: config["mean"] + config["stddev"] * ndtri(drawn)
    if isinstance(initializer, keras.initializers.TruncatedNormal):  # at two standard deviations
        low, high = ndtr(-2.0), ndtr(2.0)
        return lambda drawn: config["mean"] + config["stddev"] * ndtri(low + drawn * (high - low))
    raise InputError(
        f"growing table {name!r}: an initializer that is not supported, as the number of rows is not known",
        expected="RandomUniform, RandomNormal, TruncatedNormal, Zeros, Ones or Constant of keras",
        received=type(initializer).__name__,
    )
