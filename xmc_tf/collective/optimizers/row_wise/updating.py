"""Applies an optimizer of tables to some rows of a table."""

import tensorflow as tf

from xmc_tf.collective.optimizers.row_wise.form import TableOptimizer
from xmc_tf.collective.tables.row_sums import sum_by_number
from xmc_tf.collective.tables.table import ShardedTable


def make_slots(optimizer: TableOptimizer, table: ShardedTable) -> list[tf.Variable]:
    """Return the slots of a table. The first call creates them."""
    return [table.slot(name, value) for name, value in optimizer.slots.items()]


def update_rows(
    optimizer: TableOptimizer,
    table: ShardedTable,
    rows: tf.Tensor,
    gradients: tf.Tensor,
    step: tf.Tensor | int,
    **more: tf.Tensor,
) -> None:
    """Update the local rows of these numbers, which are unique. The first step has the number 1."""
    rate = optimizer.learning_rate() if callable(optimizer.learning_rate) else optimizer.learning_rate
    rate, slots = tf.cast(tf.convert_to_tensor(rate), tf.float32), make_slots(optimizer, table)
    states = [tf.gather(slot, rows) for slot in slots]
    values = tf.gather(table.variable, rows)
    if optimizer.weight_decay and optimizer._decays(table.variable):
        values *= 1.0 - rate * optimizer.weight_decay
    values, changed = optimizer.update(tf, rate, tf.cast(step, tf.float32), values, gradients, states, **more)
    # Writing new rows is several times as fast on CPUs as TensorFlow's scattered addition.
    for variable, new in zip([table.variable, *slots], [values, *changed], strict=True):
        variable.scatter_update(tf.IndexedSlices(new, rows))


def update_exactly(
    optimizer: TableOptimizer, table: ShardedTable, gradient: tf.IndexedSlices, step: tf.Tensor | int
) -> None:
    """Update rows as Keras does, which squares each gradient of an id. Only for optimizers that keep other rows."""
    values = tf.concat([gradient.values, tf.square(gradient.values)], axis=1)
    rows, sums = sum_by_number(gradient.indices, values)
    gradients, squares = tf.split(sums, 2, axis=1)
    update_rows(optimizer, table, rows, gradients, step, squares=squares)
