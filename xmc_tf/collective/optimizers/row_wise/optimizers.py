"""The row-wise forms of Keras's optimizers, and one for heads whose rows all move."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xmc_tf.collective.optimizers.row_wise.table_optimizer import Rate, TableOptimizer, Updated


@dataclass(eq=False)
class RowSGD(TableOptimizer):
    """Stochastic gradient descent with optional momentum, applied only to the rows that a step looks up.

    Args:
        learning_rate: a number, a variable, or a function that returns a number.
        momentum: the fraction of a row's previous update that is added to its next one.
        nesterov: whether to use Nesterov momentum.
        weight_decay: the fraction of a row, times the learning rate, that is subtracted in each step that touches it.
    """

    keras_names = ("SGD",)
    squares_gradients = False
    learning_rate: Rate = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    @property
    def slots(self) -> dict[str, float]:
        """The initial value of each slot."""
        return {"momentum": 0.0} if self.momentum else {}

    def update(self, ops: Any, rate: Any, step: Any, rows: Any, gradients: Any, states: Sequence[Any]) -> Updated:
        """Return new rows and slots."""
        if not self.momentum:
            return rows - rate * gradients, []
        velocity = self.momentum * states[0] - rate * gradients
        return rows + (self.momentum * velocity - rate * gradients if self.nesterov else velocity), [velocity]

    def differences(self) -> list[str]:
        """Return what does not happen to the rows that a step does not look up."""
        return ["the momentum of other rows neither moves them nor decays"] if self.momentum else []


@dataclass(eq=False)
class RowAdagrad(TableOptimizer):
    """Adagrad as in Keras, applied only to the rows that a step looks up.

    Args:
        learning_rate: a number, a variable, or a function that returns a number.
        initial_accumulator_value: the initial value of the sum of squared gradients.
        epsilon: a small number that prevents division by zero.
        weight_decay: the fraction of a row, times the learning rate, that is subtracted in each step that touches it.
    """

    keras_names = ("Adagrad",)
    takes_squares = True
    keeps_other_rows = True
    learning_rate: Rate = 0.001
    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7
    weight_decay: float = 0.0

    @property
    def slots(self) -> dict[str, float]:
        """The initial value of each slot."""
        return {"accumulator": self.initial_accumulator_value}

    def update(
        self, ops: Any, rate: Any, step: Any, rows: Any, gradients: Any, states: Sequence[Any], squares: Any = None
    ) -> Updated:
        """Return new rows and slots.

        Args:
            squares: the sums of the squares of each id's gradients. Default: the squares of ``gradients``.
        """
        squares = states[0] + (ops.square(gradients) if squares is None else squares)
        return rows - rate * gradients / ops.sqrt(squares + self.epsilon), [squares]


@dataclass(eq=False)
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
        amsgrad: whether to divide by the largest mean of squared gradients so far.
    """

    keras_names = ("Adam", "AdamW")
    takes_squares = True
    learning_rate: Rate = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.0
    amsgrad: bool = False

    @property
    def slots(self) -> dict[str, float]:
        """The initial value of each slot."""
        return {"m": 0.0, "v": 0.0} | ({"v_hat": 0.0} if self.amsgrad else {})

    def update(
        self, ops: Any, rate: Any, step: Any, rows: Any, gradients: Any, states: Sequence[Any], squares: Any = None
    ) -> Updated:
        """Return new rows and slots.

        Args:
            squares: the sums of the squares of each id's gradients. Default: the squares of ``gradients``.
        """
        mean = self.beta_1 * states[0] + (1 - self.beta_1) * gradients
        squares = ops.square(gradients) if squares is None else squares
        squares = self.beta_2 * states[1] + (1 - self.beta_2) * squares
        alpha = rate * ops.sqrt(1 - ops.pow(self.beta_2, step)) / (1 - ops.pow(self.beta_1, step))
        largest = [ops.maximum(states[2], squares)] if self.amsgrad else []
        length = ops.sqrt(largest[0] if self.amsgrad else squares) + self.epsilon
        return rows - alpha * mean / length, [mean, squares, *largest]

    def differences(self) -> list[str]:
        """Return what does not happen to the rows that a step does not look up."""
        return ["the momentum of other rows neither moves them nor decays"]


@dataclass(eq=False)
class RowMeanAdam(TableOptimizer):
    """Adam without momentum, with one mean of squared gradients for each row: for heads whose rows all move."""

    one_per_row = True
    learning_rate: Rate = 0.001
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    @property
    def slots(self) -> dict[str, float]:
        return {"squares": 0.0}

    def update(self, ops: Any, rate: Any, step: Any, rows: Any, gradients: Any, states: Sequence[Any]) -> Updated:
        beta = ops.constant(self.beta_2)
        squares = beta * states[0] + (1 - beta) * ops.reduce_mean(ops.square(gradients), axis=1, keepdims=True)
        return rows - rate * gradients / (ops.sqrt(squares / (1 - ops.pow(beta, step))) + self.epsilon), [squares]


@dataclass(eq=False)
class RowAdamax(TableOptimizer):
    """Adamax as in Keras, applied only to the rows that a step looks up."""

    keras_names = ("Adamax",)
    learning_rate: Rate = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.0

    @property
    def slots(self) -> dict[str, float]:
        return {"m": 0.0, "u": 0.0}

    def update(self, ops: Any, rate: Any, step: Any, rows: Any, gradients: Any, states: Sequence[Any]) -> Updated:
        mean = self.beta_1 * states[0] + (1 - self.beta_1) * gradients
        largest = ops.maximum(self.beta_2 * states[1], ops.abs(gradients))
        alpha = rate / (1 - ops.pow(self.beta_1, step))
        return rows - alpha * mean / (largest + self.epsilon), [mean, largest]

    def differences(self) -> list[str]:
        return ["the momentum of other rows neither moves them nor decays"]


@dataclass(eq=False)
class RowRMSprop(TableOptimizer):
    """RMSprop as in Keras, applied only to the rows that a step looks up."""

    keras_names = ("RMSprop",)
    takes_squares = True
    learning_rate: Rate = 0.001
    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    centered: bool = False
    weight_decay: float = 0.0

    @property
    def slots(self) -> dict[str, float]:
        names = ["velocity", *["momentum"] * (self.momentum > 0), *["average_gradient"] * self.centered]
        return dict.fromkeys(names, 0.0)

    def update(
        self, ops: Any, rate: Any, step: Any, rows: Any, gradients: Any, states: Sequence[Any], squares: Any = None
    ) -> Updated:
        new = dict(zip(self.slots, states, strict=True))
        squares = ops.square(gradients) if squares is None else squares
        squares = new["velocity"] = self.rho * new["velocity"] + (1 - self.rho) * squares
        if self.centered:
            new["average_gradient"] = self.rho * new["average_gradient"] + (1 - self.rho) * gradients
            squares -= ops.square(new["average_gradient"])
        move = rate * gradients / ops.sqrt(squares + self.epsilon)
        if self.momentum > 0:
            move = new["momentum"] = self.momentum * new["momentum"] + move
        return rows - move, list(new.values())

    def differences(self) -> list[str]:
        found = ["the mean squared gradients of other rows do not decay"]
        if self.momentum > 0:
            found.append("the momentum of other rows neither moves them nor decays")
        return found


@dataclass(eq=False)
class RowFtrl(TableOptimizer):
    """Ftrl as in Keras, applied only to the rows that a step looks up."""

    keras_names = ("Ftrl",)
    learning_rate: Rate = 0.001
    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    l2_shrinkage_regularization_strength: float = 0.0
    beta: float = 0.0
    weight_decay: float = 0.0

    @property
    def slots(self) -> dict[str, float]:
        return {"accumulator": self.initial_accumulator_value, "linear": 0.0}

    def update(self, ops: Any, rate: Any, step: Any, rows: Any, gradients: Any, states: Sequence[Any]) -> Updated:
        power, l1 = -self.learning_rate_power, self.l1_regularization_strength
        squares = states[0] + ops.square(gradients)
        grown = (ops.pow(squares, power) - ops.pow(states[0], power)) / rate
        linear = states[1] + gradients + 2 * self.l2_shrinkage_regularization_strength * rows - grown * rows
        quadratic = ops.pow(squares, power) / rate + 2 * (self.l2_regularization_strength + self.beta / (2 * rate))
        return (ops.clip_by_value(linear, -l1, l1) - linear) / quadratic, [squares, linear]

    def differences(self) -> list[str]:
        found = ["other rows keep their initial values, which Keras sets to 0 in the first step"]
        if self.l2_shrinkage_regularization_strength:
            found.append("other rows do not shrink")
        return found
