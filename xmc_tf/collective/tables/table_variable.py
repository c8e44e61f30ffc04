"""The local rows of a table as a variable of Keras, which layers track and optimizers receive."""

from typing import Any

import keras
import tensorflow as tf

from xmc_tf.collective.tables.table import ShardedTable


class TableVariable(keras.Variable):
    """A Keras variable that holds ``table.variable``.

    Args:
        table: the table.
    """

    def __init__(self, table: ShardedTable) -> None:
        self.sharded_table = table
        with tf.init_scope():
            # Of a growing table, the room when the layer is built: Keras wants a number of rows.
            rows, dim = (int(size) for size in tf.raw_ops.VariableShape(input=table.variable.handle))
        super().__init__(
            "zeros",
            (rows, dim),
            table.variable.dtype.name,
            trainable=table.variable.trainable,
            autocast=False,
            name=table.name.replace("/", "_"),
        )

    def _initialize_with_initializer(self, initializer: Any) -> None:
        self._initialize(self.sharded_table.variable)

    @property
    def overwrite_with_gradient(self) -> bool:
        """Whether an optimizer replaces the value by the gradient: never. See ``table.mark_rows``."""
        return bool(self.sharded_table.variable.overwrite_with_gradient)


def plain_variable(variable: tf.Variable | keras.Variable) -> tf.Variable:
    """Return TensorFlow's variable of a Keras variable, or the variable itself."""
    return variable._value if isinstance(variable, keras.Variable) else variable


def name_of(variable: tf.Variable | keras.Variable) -> str:
    """Return the variable's path in its model, if it has one, otherwise its name."""
    return getattr(variable, "path", variable.name)
