from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xmc_tf.collective.optimizers.row_wise.form import Rate, TableOptimizer, Updated


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
