"""Optimizers that update only the touched rows of a shard and their slots.

SGD without momentum and Adagrad equal their dense forms. Momentum and Adam decay a row's slots, and AdamW the row, only
in steps that touch the row (the usual lazy form). If each step touches each row, they too equal Keras' optimizers.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import keras
import tensorflow as tf

from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.common.errors import InputError

# A number, a variable (which a callback may change), or a function that returns a number.
Rate: TypeAlias = float | tf.Variable | Callable[[], float | tf.Tensor]


class TableOptimizer(Protocol):
    """An optimizer of the rows of a table."""

    def apply(
        self, table: ShardedTable, unique_rows: tf.Tensor, row_gradients: tf.Tensor, step: tf.Tensor | int
    ) -> None:
        """Update rows.

        Args:
            table: the table.
            unique_rows: the local row numbers, each once.
            row_gradients: the gradient of each row.
            step: the number of this step, from 1.
        """

    def make_slots(self, table: ShardedTable) -> None:
        """Create the slots, so that a checkpoint can be loaded before the first step."""


class RowSGD:
    """Stochastic gradient descent, with optional momentum.

    Args:
        learning_rate: see ``Rate``.
        momentum: the share of a row's previous step that is added to its next one.
        nesterov: whether to use Nesterov momentum.
        weight_decay: this share of the row, times the learning rate, is subtracted in each step that touches it.
    """

    def __init__(
        self, learning_rate: Rate = 0.01, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:
        self.learning_rate, self.momentum, self.nesterov = learning_rate, momentum, nesterov
        self.weight_decay = weight_decay

    def make_slots(self, table: ShardedTable) -> None:
        """Create the momentum slot, if there is momentum."""
        if self.momentum:
            table.slot("momentum")

    def apply(
        self, table: ShardedTable, unique_rows: tf.Tensor, row_gradients: tf.Tensor, step: tf.Tensor | int
    ) -> None:
        """Update rows; see ``TableOptimizer``."""
        rate = _rate(self.learning_rate)
        if not self.momentum:
            _move(table, unique_rows, -rate * row_gradients, rate, self.weight_decay)
            return
        slot = table.slot("momentum")
        velocity = self.momentum * tf.gather(slot, unique_rows) - rate * row_gradients
        slot.scatter_update(tf.IndexedSlices(velocity, unique_rows))
        move = self.momentum * velocity - rate * row_gradients if self.nesterov else velocity
        _move(table, unique_rows, move, rate, self.weight_decay)


class RowAdagrad:
    """Adagrad, as in Keras.

    Args:
        learning_rate: see ``Rate``.
        initial_accumulator_value: the initial sum of squares.
        epsilon: keeps the division finite.
        weight_decay: this share of the row, times the learning rate, is subtracted in each step that touches it.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        weight_decay: float = 0.0,
    ) -> None:
        self.learning_rate, self.initial, self.epsilon = learning_rate, initial_accumulator_value, epsilon
        self.weight_decay = weight_decay

    def make_slots(self, table: ShardedTable) -> None:
        """Create the slot for the sums of squares."""
        table.slot("accumulator", self.initial)

    def apply(
        self, table: ShardedTable, unique_rows: tf.Tensor, row_gradients: tf.Tensor, step: tf.Tensor | int
    ) -> None:
        """Update rows; see ``TableOptimizer``."""
        rate, slot = _rate(self.learning_rate), table.slot("accumulator", self.initial)
        squares = tf.gather(slot, unique_rows) + tf.square(row_gradients)
        slot.scatter_update(tf.IndexedSlices(squares, unique_rows))
        move = -rate * row_gradients / tf.sqrt(squares + self.epsilon)
        _move(table, unique_rows, move, rate, self.weight_decay)


class RowAdam:
    """Adam, or AdamW with ``weight_decay``; the bias correction uses the global step, not the row's number of steps.

    Args:
        learning_rate: see ``Rate``.
        beta_1: the decay rate of the mean.
        beta_2: the decay rate of the mean of squares.
        epsilon: keeps the division finite.
        weight_decay: this share of the row, times the learning rate, is subtracted in each step that touches it.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float = 0.0,
    ) -> None:
        self.learning_rate, self.beta_1, self.beta_2, self.epsilon = learning_rate, beta_1, beta_2, epsilon
        self.weight_decay = weight_decay

    def make_slots(self, table: ShardedTable) -> None:
        """Create the slots for the mean and the mean of squares."""
        table.slot("m")
        table.slot("v")

    def apply(
        self, table: ShardedTable, unique_rows: tf.Tensor, row_gradients: tf.Tensor, step: tf.Tensor | int
    ) -> None:
        """Update rows; see ``TableOptimizer``."""
        rate, steps = _rate(self.learning_rate), tf.cast(step, tf.float32)
        m, v = table.slot("m"), table.slot("v")
        mean = self.beta_1 * tf.gather(m, unique_rows) + (1 - self.beta_1) * row_gradients
        squares = self.beta_2 * tf.gather(v, unique_rows) + (1 - self.beta_2) * tf.square(row_gradients)
        m.scatter_update(tf.IndexedSlices(mean, unique_rows))
        v.scatter_update(tf.IndexedSlices(squares, unique_rows))
        alpha = rate * tf.sqrt(1 - tf.pow(self.beta_2, steps)) / (1 - tf.pow(self.beta_1, steps))
        move = -alpha * mean / (tf.sqrt(squares) + self.epsilon)
        _move(table, unique_rows, move, rate, self.weight_decay)


def row_wise_of(optimizer: keras.optimizers.Optimizer) -> RowSGD | RowAdagrad | RowAdam:
    """Return the row-wise form of a Keras optimizer, which follows its learning rate, schedules included."""

    def rate() -> tf.Tensor:
        return tf.convert_to_tensor(optimizer.learning_rate)

    config, decay = optimizer.get_config(), optimizer.weight_decay or 0.0
    kind = type(optimizer)
    if kind is keras.optimizers.SGD:
        return RowSGD(rate, config["momentum"], config["nesterov"], decay)
    if kind is keras.optimizers.Adagrad:
        return RowAdagrad(rate, config["initial_accumulator_value"], config["epsilon"], decay)
    special = [flag for flag in ("amsgrad",) if config.get(flag)]
    if kind in (keras.optimizers.Adam, keras.optimizers.AdamW) and not special:
        return RowAdam(rate, config["beta_1"], config["beta_2"], config["epsilon"], decay)
    raise InputError(
        "this optimizer does not support sharded tables",
        expected="SGD, Adagrad, Adam or AdamW (without amsgrad) of keras.optimizers",
        received=" with ".join([kind.__name__, *special]),
        fix="give the tables their own optimizer: strategy.optimizer(yours, table_optimizer=RowAdam(1e-3))",
    )


def _rate(rate: Rate) -> tf.Tensor:
    """Return the current learning rate."""
    return tf.cast(rate() if callable(rate) else rate, tf.float32)


def _move(table: ShardedTable, rows: tf.Tensor, move: tf.Tensor, rate: tf.Tensor, decay: float) -> None:
    """Add ``move`` to rows, after shrinking them by the share ``rate * decay``, as Keras does.

    It writes new rows, which on CPUs is several times as fast as TensorFlow's scattered addition.
    """
    before = tf.gather(table.variable, rows)
    if decay:
        before *= 1.0 - rate * decay
    table.variable.scatter_update(tf.IndexedSlices(before + move, rows))
