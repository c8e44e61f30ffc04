from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xmc_tf.collective.optimizers.row_wise.form import Rate, TableOptimizer, Updated


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
