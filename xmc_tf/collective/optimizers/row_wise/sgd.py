from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xmc_tf.collective.optimizers.row_wise.form import Rate, TableOptimizer, Updated


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
