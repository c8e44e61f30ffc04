"""All optimizers of tables, and the one that is the row-wise form of an optimizer of Keras."""

from typing import Any

import keras

from xmc_tf.collective.optimizers.row_wise.adagrad import RowAdagrad
from xmc_tf.collective.optimizers.row_wise.adam import RowAdam
from xmc_tf.collective.optimizers.row_wise.form import TableOptimizer
from xmc_tf.collective.optimizers.row_wise.ftrl import RowFtrl
from xmc_tf.collective.optimizers.row_wise.rmsprop import RowRMSprop
from xmc_tf.collective.optimizers.row_wise.sgd import RowSGD
from xmc_tf.common.errors import InputError

ROW_WISE: list[type[TableOptimizer]] = [RowSGD, RowAdagrad, RowAdam, RowRMSprop, RowFtrl]


def names_of_forms() -> list[str]:
    """Return the names of the optimizers of Keras that have a row-wise form."""
    return [name for form in ROW_WISE for name in form.keras_names]


def row_wise_of(optimizer: keras.optimizers.Optimizer) -> TableOptimizer:
    """Return the row-wise form of a Keras optimizer. It uses that optimizer's learning rate, including schedules."""
    kind = type(optimizer)
    for form in ROW_WISE:
        if kind in [getattr(keras.optimizers, name) for name in form.keras_names]:
            return form.of(optimizer)
    raise InputError(
        "this optimizer cannot update only those rows of sharded tables that a step looks up",
        expected=f"one of keras.optimizers: {', '.join(names_of_forms())}",
        received=kind.__name__,
        fix="CollectiveStrategy(exact=True), which updates all rows as Keras does; or give the tables their own "
        "optimizer: strategy.optimizer(yours, table_optimizer=RowAdam(1e-3))",
    )


def differences_of(form: TableOptimizer, inner: keras.optimizers.Optimizer) -> str:
    """Describe how a row-wise form differs from the optimizer itself, or return ""."""
    found = form.differences()
    if form.weight_decay:
        found.append("the weights of other rows do not decay")
    clips = inner.clipnorm or inner.global_clipnorm or inner.clipvalue
    if form.squares_gradients or clips:
        found.append(f"gradients of equal ids are summed before they are {'clipped' if clips else 'squared'}")
    return ", ".join(found)


def slots_of(optimizer: int | str | TableOptimizer | Any) -> int:
    """Return the number of slots of an optimizer of tables, or of the form of one of Keras or of such a name."""
    if isinstance(optimizer, int):
        return optimizer
    return len(
        (optimizer if isinstance(optimizer, TableOptimizer) else row_wise_of(keras.optimizers.get(optimizer))).slots
    )
