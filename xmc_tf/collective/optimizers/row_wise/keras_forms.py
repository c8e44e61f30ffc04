"""All optimizers of tables, and the one that is the row-wise form of an optimizer of Keras."""

from typing import Any

import keras

from xmc_tf.collective.optimizers.row_wise.optimizers import (
    RowAdagrad,
    RowAdam,
    RowAdamax,
    RowFtrl,
    RowRMSprop,
    RowSGD,
)
from xmc_tf.collective.optimizers.row_wise.table_optimizer import TableOptimizer
from xmc_tf.collective.tables.row_sums import has_gpu
from xmc_tf.common.errors import InputError

ROW_WISE: list[type[TableOptimizer]] = [RowSGD, RowAdagrad, RowAdam, RowAdamax, RowRMSprop, RowFtrl]


def names_of_forms() -> list[str]:
    """Return the names of the optimizers of Keras that have a row-wise form."""
    return [name for form in ROW_WISE for name in form.keras_names]


def unchanged_class(optimizer: keras.optimizers.Optimizer) -> type:
    """Return the class of Keras whose update an optimizer makes: its own, unless it only adds to a class of Keras."""
    for kind in type(optimizer).__mro__:
        if kind.__module__.startswith("keras."):
            return kind
        added = {name for name in vars(kind) if not name.startswith("__")} - {"get_config", "from_config"}
        if any(hasattr(parent, name) for name in added for parent in kind.__mro__[1:]):
            break  # such as update_step
    return type(optimizer)


def form_of(optimizer: keras.optimizers.Optimizer) -> type[TableOptimizer] | None:
    kind = unchanged_class(optimizer)
    forms = (one for one in ROW_WISE if kind in [getattr(keras.optimizers, name) for name in one.keras_names])
    return next(forms, None)


def exact_form_of(optimizer: keras.optimizers.Optimizer, size: int) -> TableOptimizer | None:
    """Return the form that updates all rows of a table as Keras does, only faster. Return None if there is none."""
    if (form := form_of(optimizer)) is None or not (form.takes_squares or not form.squares_gradients):
        return None
    found = form.of(optimizer)
    found.weight_decay = 0.0  # Keras lets all weights decay before it asks for an update
    # TensorFlow's own update without slots writes only the rows that have gradients. One process has several threads,
    # among which small blocks gain little; on GPUs, they would be slow.
    return found if found.keeps_other_rows or (size > 1 and found.slots and not has_gpu()) else None


def row_wise_of(optimizer: keras.optimizers.Optimizer) -> TableOptimizer:
    """Return the row-wise form of a Keras optimizer. It uses that optimizer's learning rate, including schedules."""
    if (form := form_of(optimizer)) is not None:
        return form.of(optimizer)
    raise InputError(
        "this optimizer cannot update only those rows of sharded tables that a step looks up",
        expected=f"one of keras.optimizers: {', '.join(names_of_forms())}, or a subclass that changes nothing of the "
        "update",
        received=type(optimizer).__name__,
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
