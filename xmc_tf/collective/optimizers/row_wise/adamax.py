from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xmc_tf.collective.optimizers.row_wise.form import Rate, TableOptimizer, Updated


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
