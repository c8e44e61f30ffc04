"""The contract of an optimizer of tables: its optimizer of Keras, its slots, its update, and how it differs.

A new one is a class in ``optimizers.py`` and a line in ``keras_forms.py``. These classes load no TensorFlow, because
plans ask for the slots: an update gets TensorFlow as ``ops``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Self, TypeAlias

# A number, a variable (which a callback may change), or a function that returns a number.
Rate: TypeAlias = Any
# The new values of rows, and of their slots.
Updated: TypeAlias = tuple[Any, Sequence[Any]]


class TableOptimizer(ABC):
    """An optimizer that updates only the rows of a table that a step looks up (lazy updates).

    Subclasses are dataclasses. Their fields are the learning rate, the weight decay, and the options of the optimizer
    of Keras, with the same names and defaults.
    """

    keras_names: ClassVar[tuple[str, ...]] = ()  # the optimizers of ``keras.optimizers`` whose row-wise form this is
    squares_gradients: ClassVar[bool] = True  # so that the sum of gradients has another effect than each of them
    # Whether ``update`` takes the sums of squares of each id's gradients, as Keras has them.
    takes_squares: ClassVar[bool] = False
    keeps_other_rows: ClassVar[bool] = False  # whether Keras does not move other rows either
    one_per_row: ClassVar[bool] = (
        False  # whether slots have one number for a row, instead of one for each of its numbers
    )
    learning_rate: Rate
    weight_decay: float
    _decays: Callable[[Any], bool] = staticmethod(lambda variable: True)  # whether the weights of a variable decay

    @classmethod
    def of(cls, optimizer: Any, learning_rate: Rate = None) -> Self:
        """Return this form with the options of an optimizer of Keras.

        Args:
            optimizer: an optimizer of Keras.
            learning_rate: the learning rate. Default: that of ``optimizer``, including schedules.
        """
        options = {one.name: getattr(optimizer, one.name) for one in fields(cls)}  # type: ignore[arg-type]
        options["learning_rate"] = (lambda: optimizer.learning_rate) if learning_rate is None else learning_rate
        options["weight_decay"] = optimizer.weight_decay or 0.0
        found = cls(**options)
        found._decays = optimizer._use_weight_decay
        return found

    @property
    @abstractmethod
    def slots(self) -> dict[str, float]:
        """The initial value of each slot, by name, in the order of Keras."""

    @abstractmethod
    def update(self, ops: Any, rate: Any, step: Any, rows: Any, gradients: Any, states: Sequence[Any]) -> Updated:
        """Return new rows and slots.

        Args:
            ops: TensorFlow.
            rate: the learning rate.
            step: the number of this step, starting from 1.
            rows: the rows, whose weights have decayed already.
            gradients: the gradient of each row.
            states: the slots of these rows.
        """

    def differences(self) -> list[str]:
        """Return what does not happen to the rows that a step does not look up, but would in Keras."""
        return []
