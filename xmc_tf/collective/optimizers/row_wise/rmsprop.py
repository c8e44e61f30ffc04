from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xmc_tf.collective.optimizers.row_wise.form import Rate, TableOptimizer, Updated


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
