"""A Keras optimizer that works over all ranks, in ``fit`` and in custom training loops."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from xmc_tf.collective.engines import operations
from xmc_tf.collective.optimizers.accumulation import Accumulator
from xmc_tf.collective.optimizers.gradients import (
    Gradient,
    Reduction,
    RowGradient,
    clipped,
    is_replicated,
    norm_and_finiteness,
    scaled,
    split,
    sum_replicated,
    sum_replicated_rows,
)
from xmc_tf.collective.optimizers.loss_scale import LossScale
from xmc_tf.collective.optimizers.row_wise import TableOptimizer, row_wise_of
from xmc_tf.collective.tables.table import ShardedTable, table_of
from xmc_tf.common.errors import InputError


class CollectiveOptimizer(tf_keras.optimizers.Optimizer, tf_keras.mixed_precision.LossScaleOptimizer):
    """An optimizer that combines the gradients of all ranks and makes the same step on all of them.

    ``inner`` updates replicated variables with gradients summed over the ranks. Its row-wise form updates sharded
    tables, each rank its own rows. The learning rate is not scaled by the number of ranks.

    It is a LossScaleOptimizer so that Keras does not wrap it in one, which would decide on overflow on each rank
    separately.

    Example:
        >>> optimizer = strategy.optimizer(tf_keras.optimizers.Adam(1e-3))
        >>> gradients = tape.gradient(loss, model.trainable_variables)
        >>> optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    Args:
        inner: the optimizer of replicated variables; its global_clipnorm and clipvalue apply to the tables too.
        size: the number of ranks.
        table_optimizer: the optimizer of the tables; default: the row-wise form of ``inner``.
        reduction: "mean" if each rank's loss is the mean over its batch, "sum" if the ranks' losses add up.
        accumulate: the number of batches in a step.
        loss_scale: for fp16: ``apply_gradients`` then expects gradients of ``get_scaled_loss(loss)``; default: none.

    Attributes:
        gradient_norm: the norm of all gradients of the last step before clipping; only computed with clipping or loss
            scaling.
    """

    loss_scale: LossScale | None = None  # hides Keras' read-only property

    def __init__(
        self,
        inner: tf_keras.optimizers.Optimizer,
        size: int,
        *,
        table_optimizer: TableOptimizer | None = None,
        reduction: Reduction = "mean",
        accumulate: int = 1,
        loss_scale: LossScale | None = None,
    ) -> None:
        _check(inner, reduction, accumulate)
        super().__init__(name=f"collective_{inner.name}")
        self.inner = inner
        # Clipping happens here, by the norm of all gradients; ``inner`` sees only the replicated variables.
        self.norm_limit, inner.global_clipnorm = inner.global_clipnorm, None
        self._size, self._reduction = size, reduction
        self._table_optimizer = table_optimizer
        self._accumulator = Accumulator(accumulate) if accumulate > 1 else None
        self.loss_scale = loss_scale
        self._ready = False
        with tf.init_scope():
            self.gradient_norm = tf.Variable(0.0, trainable=False, name="gradient_norm")  # not saved

    @property
    def iterations(self) -> tf.Variable:
        """The number of steps made."""
        return self.inner.iterations

    @iterations.setter
    def iterations(self, variable: tf.Variable) -> None:
        self.inner.iterations = variable

    @property
    def learning_rate(self) -> tf.Variable:
        """The learning rate of replicated variables and tables."""
        return self.inner.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner.learning_rate = value

    lr = learning_rate

    @property
    def variables(self) -> list[tf.Variable]:
        """The state for replicated variables; that of tables is in ``table.slots``."""
        return self.inner.variables

    @property
    def inner_optimizer(self) -> tf_keras.optimizers.Optimizer:
        """``inner``, under Keras' name."""
        return self.inner

    @property
    def batches_per_step(self) -> int:
        """The number of batches in a step."""
        return 1 if self._accumulator is None else self._accumulator.every

    def get_config(self) -> dict:
        """Return the configuration of ``inner``, so that saved models do not depend on ranks."""
        return {**self.inner.get_config(), "global_clipnorm": self.norm_limit}

    @tf.autograph.experimental.do_not_convert
    def get_scaled_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Return the loss times the loss scale, if there is one."""
        return loss if self.loss_scale is None else self.loss_scale.scaled(loss)

    def get_unscaled_gradients(self, grads: Sequence[Gradient | None]) -> Sequence[Gradient | None]:
        """Return the gradients unchanged: ``apply_gradients`` unscales them. For loops written for Keras."""
        return grads

    @tf.autograph.experimental.do_not_convert
    def compute_gradients(
        self, loss: tf.Tensor | Callable, var_list: Any, tape: tf.GradientTape | None = None
    ) -> list[tuple[Gradient | None, tf.Variable]]:
        """Return the gradients of the scaled loss; ``fit`` calls this."""
        tape = tf.GradientTape() if tape is None else tape
        with tape:
            loss = self.get_scaled_loss(loss() if callable(loss) else loss)
        variables = var_list() if callable(var_list) else list(var_list)
        return list(zip(tape.gradient(loss, variables), variables, strict=True))

    @tf.autograph.experimental.do_not_convert
    def build(self, var_list: Iterable[tf.Variable]) -> None:
        """Create the slots, and broadcast rank 0's values of replicated variables."""
        if self._ready:
            return
        variables = list(var_list)
        replicated = [variable for variable in variables if table_of(variable) is None]
        if self._size > 1:
            operations.broadcast_variables(replicated)
        if replicated:
            self.inner.build(replicated)
        tables = [table for variable in variables if (table := table_of(variable)) is not None]
        if tables and self._table_optimizer is None:
            self._table_optimizer = row_wise_of(self.inner)
        for table in tables:
            assert self._table_optimizer is not None
            self._table_optimizer.make_slots(table)
        self._ready = True

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Gradient | None, tf.Variable]], name: str | None = None, **_: Any
    ) -> tf.Variable:
        """Make a step, or accumulate the gradients for one; collective."""
        gradients, variables = (list(part) for part in zip(*grads_and_vars, strict=True))
        with tf.init_scope():
            self.build(variables)
        with tf.name_scope(name or self.name):
            replicated, dense, tables, rows = split(gradients, variables, [table_of(one) for one in variables])
            if self.loss_scale is not None:
                dense, rows = scaled(dense, rows, 1.0 / self.loss_scale.value)
            if self._accumulator is None:
                self._step(replicated, dense, tables, rows)
            else:
                self._accumulate(replicated, dense, tables, rows)
        return self.iterations

    def _accumulate(
        self,
        replicated: Sequence[tf.Variable],
        dense: Sequence[tf.Tensor],
        tables: Sequence[ShardedTable],
        rows: Sequence[RowGradient],
    ) -> None:
        """Accumulate gradients, and make the step after the last batch."""
        accumulator = self._accumulator
        assert accumulator is not None
        accumulator.add(dense, rows)

        def step() -> tf.Tensor:
            held_dense, held_rows = accumulator.take()
            self._step(replicated, held_dense, tables, held_rows)
            return tf.constant(True)

        # The count is the same on all ranks, so all of them take the same branch.
        tf.cond(accumulator.full(), step, lambda: tf.constant(False))

    def _step(
        self,
        replicated: Sequence[tf.Variable],
        dense: Sequence[tf.Tensor],
        tables: Sequence[ShardedTable],
        rows: Sequence[RowGradient],
    ) -> None:
        """Sum the gradients over the ranks, clip them, and update the variables."""
        dense, rows = sum_replicated(dense, self._size), sum_replicated_rows(rows, tables, self._size)
        if self._reduction == "mean" and self._size > 1:
            dense, rows = scaled(dense, rows, 1.0 / self._size)
        if self.norm_limit is None and self.loss_scale is None:
            self._update(replicated, dense, tables, rows)
            return
        whole = [is_replicated(table, self._size) for table in tables]
        once = [*dense, *(row.values for row, every in zip(rows, whole, strict=True) if every)]
        shards = [row for row, every in zip(rows, whole, strict=True) if not every]
        norm, finite = norm_and_finiteness(once, shards, self._size)
        self.gradient_norm.assign(norm)
        if self.norm_limit is not None:
            dense, rows = clipped(dense, rows, norm, self.norm_limit)
        if self.loss_scale is None:
            self._update(replicated, dense, tables, rows)
            return

        def update() -> tf.Tensor:
            self._update(replicated, dense, tables, rows)
            return tf.constant(True)

        tf.cond(finite, update, lambda: tf.constant(False))
        self.loss_scale.update(finite)

    def _update(
        self,
        replicated: Sequence[tf.Variable],
        dense: Sequence[tf.Tensor],
        tables: Sequence[ShardedTable],
        rows: Sequence[RowGradient],
    ) -> None:
        """Update this rank's variables, without communication."""
        if replicated:  # also counts the step and applies the learning rate schedule
            self.inner.apply_gradients(zip(dense, replicated, strict=True))
        else:
            self.inner._compute_current_learning_rate()
            self.inner.iterations.assign_add(1)
        for table, gradient in zip(tables, rows, strict=True):
            values = gradient.values
            if self.inner.clipvalue is not None:
                values = tf.clip_by_value(values, -self.inner.clipvalue, self.inner.clipvalue)
            assert self._table_optimizer is not None
            self._table_optimizer.apply(table, gradient.rows, values, self.inner.iterations)
        for table in tables:
            table.finish_step(self.inner.iterations)


def _check(inner: tf_keras.optimizers.Optimizer, reduction: str, accumulate: int) -> None:
    """Refuse options that are not supported over ranks."""
    if isinstance(inner, tf_keras.optimizers.legacy.Optimizer) or not isinstance(inner, tf_keras.optimizers.Optimizer):
        raise InputError(
            "optimizer", expected="one of tf_keras.optimizers, not of its legacy part", received=type(inner).__name__
        )
    if reduction not in ("mean", "sum"):
        raise InputError("reduction over the ranks", expected="'mean' or 'sum'", received=repr(reduction))
    if accumulate < 1:
        raise InputError("batches in a step (accumulate)", expected="1 or more", received=str(accumulate))
    if inner.clipnorm is not None:
        raise InputError(
            "clipnorm clips every variable by itself, and no rank sees the whole of a sharded one",
            fix="use global_clipnorm, which is one norm over all that is trained",
        )
    if inner.use_ema:
        raise InputError("averages of the weights (use_ema) are not supported for sharded tables", fix="omit use_ema")
