"""Applies an optimizer of tables to some or to all rows of a table."""

from collections.abc import Sequence

import tensorflow as tf

from xmc_tf.collective.optimizers.row_wise.table_optimizer import TableOptimizer
from xmc_tf.collective.tables.full_table_loss import RowStep, updated_block
from xmc_tf.collective.tables.row_sums import sum_by_number
from xmc_tf.collective.tables.table import ShardedTable

# A block of rows and of their slots, which all fit into the cache of a processor.
_NUMBERS_OF_BLOCK = 2**17


def make_slots(optimizer: TableOptimizer, table: ShardedTable) -> list[tf.Variable]:
    """Return the slots of a table. The first call creates them."""
    return [table.slot(name, value) for name, value in optimizer.slots.items()]


def update_rows(
    optimizer: TableOptimizer, table: ShardedTable, rows: tf.Tensor, gradients: tf.Tensor, step: tf.Tensor | int
) -> None:
    """Update the local rows of these numbers, which are unique. The first step has the number 1."""
    variables = [table.variable, *make_slots(optimizer, table)]
    _write(variables, rows, _updated(optimizer, variables, rows, gradients, _step(optimizer, step)))


def update_exactly(
    optimizer: TableOptimizer, table: ShardedTable, gradient: tf.IndexedSlices, step: tf.Tensor | int
) -> None:
    """Update all rows as Keras does, which squares each gradient of an id. ``optimizer`` is one of ``exact_form_of``.
    Its slots are the last ones of the table, which Keras has made.
    """
    values = tf.concat([gradient.values, tf.square(gradient.values)], axis=1)
    rows, sums = sum_by_number(gradient.indices, values)
    gradients, squares = tf.split(sums, 2, axis=1)
    variables = [table.variable, *list(table.slots.values())[-len(optimizer.slots) :]]
    now, more = _step(optimizer, step), {"squares": squares} if optimizer.takes_squares else {}
    touched = _updated(optimizer, variables, rows, gradients, now, **more)
    if not optimizer.keeps_other_rows:
        _update_without_gradients(optimizer, variables, now)
    _write(variables, rows, touched)


# A function, so that the loop runs in TensorFlow even if the step does not.
@tf.function(autograph=False)
def _update_without_gradients(optimizer: TableOptimizer, variables: Sequence[tf.Variable], now: RowStep) -> None:
    """Update all rows, block by block, so that each number is read from memory and written there once."""
    size, dim = variables[0].shape
    zero, each = tf.zeros([]), max(1, _NUMBERS_OF_BLOCK // dim)
    whole = size - size % each

    def block(low: tf.Tensor) -> list[tf.Tensor]:
        rows = tf.range(low, low + each)
        before, *states = (tf.ensure_shape(tf.gather(one, rows), [each, dim]) for one in variables)
        after, changed = updated_block(optimizer, before, zero, states, now, low)
        _write(variables, rows, [after, *changed])
        return [low + each]

    tf.while_loop(lambda low: low < whole, block, [tf.constant(0)], parallel_iterations=1)
    rest = tf.range(whole, size)
    _write(variables, rest, _updated(optimizer, variables, rest, zero, now))


def _step(optimizer: TableOptimizer, number: tf.Tensor | int) -> RowStep:
    rate = optimizer.learning_rate() if callable(optimizer.learning_rate) else optimizer.learning_rate
    return RowStep(tf.cast(number, tf.float32), tf.cast(tf.convert_to_tensor(rate), tf.float32), tf.ones([]))


def _updated(
    optimizer: TableOptimizer,
    variables: Sequence[tf.Variable],
    rows: tf.Tensor,
    gradients: tf.Tensor,
    now: RowStep,
    **more: tf.Tensor,
) -> list[tf.Tensor]:
    """Return the new values of these rows, in each of ``variables``: the table and its slots."""
    values, *states = (tf.gather(one, rows) for one in variables)
    if optimizer.weight_decay and optimizer._decays(variables[0]):
        values *= 1.0 - now.rate * optimizer.weight_decay
    values, changed = optimizer.update(tf, now.rate, now.number, values, gradients, states, **more)
    return [values, *changed]


def _write(variables: Sequence[tf.Variable], rows: tf.Tensor, values: Sequence[tf.Tensor]) -> None:
    # Writing new rows is several times as fast on CPUs as TensorFlow's scattered addition.
    for variable, new in zip(variables, values, strict=True):
        variable.scatter_update(tf.IndexedSlices(new, rows))
