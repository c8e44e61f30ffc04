from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xmc_tf.collective.optimizers.row_wise.form import Rate, TableOptimizer, Updated


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
