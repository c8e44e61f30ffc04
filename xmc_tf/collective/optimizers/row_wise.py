"""Optimizers that update only the rows of a shard that a step looks up, and their slots (lazy updates)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import keras
import tensorflow as tf

from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.common.errors import InputError

# A number, a variable (which a callback may change), or a function that returns a number.
Rate: TypeAlias = float | tf.Variable | Callable[[], float | tf.Tensor]
# What is added to rows, and the new values of their slots.
Move: TypeAlias = tuple[tf.Tensor, Sequence[tf.Tensor]]


class TableOptimizer(ABC):
    """An optimizer for the rows of a table. ``slots`` holds the initial value of each slot."""

    def __init__(self, learning_rate: Rate, weight_decay: float, **slots: float) -> None:
        self.learning_rate, self.weight_decay, self._slots = learning_rate, weight_decay, slots
        self._decays: Callable[[tf.Variable], bool] = lambda variable: True

    def make_slots(self, table: ShardedTable) -> None:
        """Create the slots, so that a checkpoint can be loaded before the first step.

        Args:
            table: the table that gets the slots.
        """
        for name, value in self._slots.items():
            table.slot(name, value)

    def apply(
        self, table: ShardedTable, unique_rows: tf.Tensor, row_gradients: tf.Tensor, step: tf.Tensor | int
    ) -> None:
        """Update some rows of a table.

        Args:
            table: the table.
            unique_rows: the local row numbers, without repetitions.
            row_gradients: the gradient of each of these rows.
            step: the number of this step, starting from 1.
        """
        rate = tf.cast(self.learning_rate() if callable(self.learning_rate) else self.learning_rate, tf.float32)
        slots = [table.slot(name, value) for name, value in self._slots.items()]
        states = [tf.gather(slot, unique_rows) for slot in slots]
        move, changed = self._move(rate, tf.cast(step, tf.float32), row_gradients, states)
        for slot, state in zip(slots, changed, strict=True):
            slot.scatter_update(tf.IndexedSlices(state, unique_rows))
        rows = tf.gather(table.variable, unique_rows)
        if self.weight_decay and self._decays(table.variable):
            rows *= 1.0 - rate * self.weight_decay
        # Writing new rows is several times as fast on CPUs as TensorFlow's scattered addition.
        table.variable.scatter_update(tf.IndexedSlices(rows + move, unique_rows))

    @abstractmethod
    def _move(self, rate: tf.Tensor, step: tf.Tensor, gradients: tf.Tensor, states: Sequence[tf.Tensor]) -> Move:
        """Return what to add to the rows for these gradients and slots, and the new values of the slots."""


class RowSGD(TableOptimizer):
    """Stochastic gradient descent with optional momentum, applied only to the rows that a step looks up.

    Args:
        learning_rate: a number, a variable, or a function that returns a number.
        momentum: the fraction of a row's previous update that is added to its next one.
        nesterov: whether to use Nesterov momentum.
        weight_decay: the fraction of a row, times the learning rate, that is subtracted in each step that touches it.
    """

    def __init__(
        self, learning_rate: Rate = 0.01, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:
        super().__init__(learning_rate, weight_decay, **({"momentum": 0.0} if momentum else {}))
        self.momentum, self.nesterov = momentum, nesterov

    def _move(self, rate: tf.Tensor, step: tf.Tensor, gradients: tf.Tensor, states: Sequence[tf.Tensor]) -> Move:
        if not self.momentum:
            return -rate * gradients, []
        velocity = self.momentum * states[0] - rate * gradients
        return self.momentum * velocity - rate * gradients if self.nesterov else velocity, [velocity]


class RowAdagrad(TableOptimizer):
    """Adagrad as in Keras, applied only to the rows that a step looks up.

    Args:
        learning_rate: a number, a variable, or a function that returns a number.
        initial_accumulator_value: the initial value of the sum of squared gradients.
        epsilon: a small number that prevents division by zero.
        weight_decay: the fraction of a row, times the learning rate, that is subtracted in each step that touches it.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, weight_decay, accumulator=initial_accumulator_value)
        self.epsilon = epsilon

    def _move(self, rate: tf.Tensor, step: tf.Tensor, gradients: tf.Tensor, states: Sequence[tf.Tensor]) -> Move:
        squares = states[0] + tf.square(gradients)
        return -rate * gradients / tf.sqrt(squares + self.epsilon), [squares]


class RowAdam(TableOptimizer):
    """Adam, or AdamW with ``weight_decay``, applied only to the rows that a step looks up.

    The bias correction uses the number of the training step, not the number of updates of the row.

    Example:
        >>> optimizer = strategy.optimizer(keras.optimizers.RMSprop(1e-3), table_optimizer=RowAdam(1e-2))

    Args:
        learning_rate: a number, a variable, or a function that returns a number.
        beta_1: the decay rate of the mean of gradients.
        beta_2: the decay rate of the mean of squared gradients.
        epsilon: a small number that prevents division by zero.
        weight_decay: the fraction of a row, times the learning rate, that is subtracted in each step that touches it.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, weight_decay, m=0.0, v=0.0)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def _move(self, rate: tf.Tensor, step: tf.Tensor, gradients: tf.Tensor, states: Sequence[tf.Tensor]) -> Move:
        mean = self.beta_1 * states[0] + (1 - self.beta_1) * gradients
        squares = self.beta_2 * states[1] + (1 - self.beta_2) * tf.square(gradients)
        alpha = rate * tf.sqrt(1 - tf.pow(self.beta_2, step)) / (1 - tf.pow(self.beta_1, step))
        return -alpha * mean / (tf.sqrt(squares) + self.epsilon), [mean, squares]


def row_wise_of(optimizer: keras.optimizers.Optimizer) -> TableOptimizer:
    """Return the row-wise form of a Keras optimizer. It uses that optimizer's learning rate, including schedules."""

    def rate() -> tf.Tensor:
        return tf.convert_to_tensor(optimizer.learning_rate)

    config, decay, kind = optimizer.get_config(), optimizer.weight_decay or 0.0, type(optimizer)
    found: TableOptimizer | None = None
    amsgrad = bool(config.get("amsgrad"))
    if kind is keras.optimizers.SGD:
        found = RowSGD(rate, config["momentum"], config["nesterov"], decay)
    elif kind is keras.optimizers.Adagrad:
        found = RowAdagrad(rate, config["initial_accumulator_value"], config["epsilon"], decay)
    elif kind in (keras.optimizers.Adam, keras.optimizers.AdamW) and not amsgrad:
        found = RowAdam(rate, config["beta_1"], config["beta_2"], config["epsilon"], decay)
    if found is None:
        raise InputError(
            "this optimizer cannot update only those rows of sharded tables that a step looks up",
            expected="SGD, Adagrad, Adam or AdamW (without amsgrad) of keras.optimizers",
            received=kind.__name__ + " with amsgrad" * amsgrad,
            fix="CollectiveStrategy(exact=True), which updates all rows as Keras does; or give the tables their own "
            "optimizer: strategy.optimizer(yours, table_optimizer=RowAdam(1e-3))",
        )
    found._decays = optimizer._use_weight_decay
    return found


def differences_of(optimizer: TableOptimizer, inner: keras.optimizers.Optimizer) -> str:
    """Describe how a row-wise form differs from the optimizer itself, or return ""."""
    found = []
    if isinstance(optimizer, RowAdam) or (isinstance(optimizer, RowSGD) and optimizer.momentum):
        found.append("the momentum of other rows neither moves them nor decays")
    if optimizer.weight_decay:
        found.append("the weights of other rows do not decay")
    clips = inner.clipnorm or inner.global_clipnorm or inner.clipvalue
    if not isinstance(optimizer, RowSGD) or clips:
        found.append(f"gradients of equal ids are summed before they are {'clipped' if clips else 'squared'}")
    return ", ".join(found)
