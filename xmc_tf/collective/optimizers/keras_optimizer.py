"""A Keras optimizer that works over all ranks, in ``fit`` and in custom training loops."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.keras_2 import check_keras_3
from xmc_tf.collective.optimizers.accumulation import Accumulator
from xmc_tf.collective.optimizers.gradients import Gradient, Gradients, Reduction, split
from xmc_tf.collective.optimizers.loss_scale import LossScale
from xmc_tf.collective.optimizers.row_wise import TableOptimizer, row_wise_of
from xmc_tf.collective.tables.keras_embedding import load_rows
from xmc_tf.collective.tables.table import ShardedTable, table_of
from xmc_tf.collective.tables.table_variable import plain_variable
from xmc_tf.collective.tables.whole_rows import whole_rows
from xmc_tf.common.errors import InputError


class CollectiveOptimizer(keras.optimizers.Optimizer):
    """An optimizer that combines the gradients of all ranks and makes the same step on all of them.

    ``inner`` updates replicated variables with gradients summed over the ranks. Its row-wise form updates sharded
    tables, each rank its own rows. The learning rate is not scaled by the number of ranks.

    Example:
        >>> optimizer = strategy.optimizer(keras.optimizers.Adam(1e-3))
        >>> gradients = tape.gradient(loss, model.trainable_variables)
        >>> optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    Args:
        inner: the optimizer of replicated variables; its global_clipnorm and clipvalue apply to the tables too.
        size: the number of ranks.
        table_optimizer: the optimizer of the tables; default: the row-wise form of ``inner``.
        reduction: "mean" if each rank's loss is the mean over its batch, "sum" if the ranks' losses add up.
        accumulate: the number of batches in a step; default: the gradient_accumulation_steps of ``inner``, or 1.
        loss_scale: for fp16: ``apply_gradients`` then expects gradients of ``scale_loss(loss)``; default: the constant
            loss_scale_factor of ``inner``, if it has one.

    Attributes:
        gradient_norm: the norm of all gradients of the last step before clipping; only computed with clipping or loss
            scaling.
        last_rate: the learning rate of the last step.
    """

    built: bool

    def __init__(
        self,
        inner: keras.optimizers.Optimizer,
        size: int,
        *,
        table_optimizer: TableOptimizer | None = None,
        reduction: Reduction = "mean",
        accumulate: int = 1,
        loss_scale: LossScale | None = None,
    ) -> None:
        _check(inner, reduction, accumulate)
        super().__init__(learning_rate=0.0, name=f"collective_{inner.name}")
        self.inner = inner
        self.norm_limit = inner.global_clipnorm
        self._size, self._reduction = size, reduction
        self._table_optimizer = table_optimizer
        accumulate = inner.gradient_accumulation_steps or accumulate
        self._accumulator = Accumulator(accumulate) if accumulate > 1 else None
        if loss_scale is None and inner.loss_scale_factor is not None:
            loss_scale = LossScale(float(inner.loss_scale_factor), growth_steps=None)
        self.loss_scale = loss_scale
        with tf.init_scope():
            self.gradient_norm = tf.Variable(0.0, trainable=False, name="gradient_norm")  # not saved
            self.last_rate = tf.Variable(0.0, trainable=False, name="last_rate")  # not saved

    @property
    def iterations(self) -> keras.Variable:
        """The number of steps made."""
        return self.inner._iterations

    @property
    def learning_rate(self) -> Any:
        """The learning rate of replicated variables and tables; with a schedule, that of the next step."""
        return self.inner.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner.learning_rate = value

    @property
    def variables(self) -> list[keras.Variable]:
        """The state for replicated variables; that of tables is in ``table.slots``."""
        return self.inner.variables

    @property
    def batches_per_step(self) -> int:
        """The number of batches in a step."""
        return 1 if self._accumulator is None else self._accumulator.every

    def __dir__(self) -> list[str]:
        """Return the attributes without ``inner``, whose state is saved as that of this optimizer.

        Keras looks here for the parts of a model to save.
        """
        return [name for name in super().__dir__() if name != "inner"]

    def get_config(self) -> dict:
        """Return the configuration of ``inner``, so that saved models do not depend on ranks."""
        return self.inner.get_config()

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Return the loss times the loss scale, if there is one."""
        return loss if self.loss_scale is None else self.loss_scale.scaled(loss)

    @tf.autograph.experimental.do_not_convert
    def build(self, variables: Iterable[tf.Variable]) -> None:
        """Create the slots, and broadcast rank 0's values of replicated variables."""
        if self.built:
            return
        self.trained = list(variables)
        replicated = [variable for variable in self.trained if table_of(variable) is None]
        if self._size > 1:
            # While the first step is traced, variables that it has made have no values yet. They are made from equal
            # seeds, and ``fit`` checks that they are equal.
            plain = [plain_variable(variable) for variable in replicated]
            operations.broadcast_variables([variable for variable in plain if bool(variable.is_initialized())])
        with _only_updates(self.inner):
            self.inner.build(replicated)
        tables = [table for variable in self.trained if (table := table_of(variable)) is not None]
        if tables and self._table_optimizer is None:
            self._table_optimizer = row_wise_of(self.inner)
        for table in tables:
            assert self._table_optimizer is not None
            self._table_optimizer.make_slots(table)
        self.built = True

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(self, grads_and_vars: Iterable[tuple[Gradient | None, tf.Variable]]) -> keras.Variable:
        """Make a step, or accumulate the gradients for one; collective."""
        gradients, variables = (list(part) for part in zip(*grads_and_vars, strict=True))
        self.apply(gradients, variables)
        return self.iterations

    @tf.autograph.experimental.do_not_convert
    def apply(self, grads: Sequence[Gradient | None], trainable_variables: Iterable[tf.Variable] | None = None) -> None:
        """Make a step, or accumulate the gradients for one; collective.

        Args:
            grads: the gradients.
            trainable_variables: their variables; default: those of ``build``.
        """
        variables = list(self.trained if trainable_variables is None else trainable_variables)
        with tf.init_scope():
            self.build(variables)
        with tf.name_scope(self.name):
            found = split(grads, variables)
            if self.loss_scale is not None:
                found = found.scaled(1.0 / self.loss_scale.value)
            if self._accumulator is None:
                self._step(found)
                return
            self._accumulator.add(found)
            # The count is the same on all ranks, so all of them take the same branch.
            tf.cond(
                self._accumulator.full(),
                lambda: self._true_after(self._step, self._accumulator.take(found)),
                lambda: tf.constant(False),
            )

    @staticmethod
    def _true_after(work: Callable[[Gradients], None], gradients: Gradients) -> tf.Tensor:
        work(gradients)
        return tf.constant(True)

    def save_own_variables(self, store: Any) -> None:
        """Save the state as that of ``inner`` over all variables in one process."""
        for number, (variable, table, slot) in enumerate(self._state()):
            store[str(number)] = variable.numpy() if table is None else whole_rows(table, slot)

    def load_own_variables(self, store: Any) -> None:
        """Load the state of an optimizer of one process, or of this kind on any number of ranks."""
        state = self._state()
        if len(store.keys()) != len(state):
            raise InputError(
                f"the saved state of the optimizer does not fit {self.inner.name!r}",
                expected=f"{len(state)} variables",
                received=str(len(store.keys())),
                fix="load the model with compile=False, and compile it again",
            )
        for number, (variable, table, slot) in enumerate(state):
            if table is None:
                variable.assign(store[str(number)])
            else:
                load_rows(table, store[str(number)], slot)

    def _state(self) -> list[tuple[Any, ShardedTable | None, str]]:
        """Return the variables in the order of an optimizer of one process: variable, table, name of its slot."""
        if not self.built:
            return [(variable, None, "") for variable in self.inner.variables]
        replicated = [variable for variable in self.trained if table_of(variable) is None]
        every = list(self.inner.variables)
        own = len(every) - 2 + (not isinstance(self.inner._learning_rate, keras.Variable))
        each = own // max(1, len(replicated))
        first = len(every) - each * len(replicated)
        state: list[tuple[Any, ShardedTable | None, str]] = [(variable, None, "") for variable in every[:first]]
        rest = iter(every[first:])
        for variable in self.trained:
            table = table_of(variable)
            if table is None:
                state += [(next(rest), None, "") for _ in range(each)]
            else:
                state += [(slot, table, name) for name, slot in table.slots.items()]
        return state

    def _step(self, gradients: Gradients) -> None:
        """Sum the gradients over the ranks, clip them, and update the variables."""
        gradients = gradients.summed(self._size)
        if self._reduction == "mean" and self._size > 1:
            gradients = gradients.scaled(1.0 / self._size)
        if self.norm_limit is None and self.loss_scale is None:
            self._update(gradients)
            return
        norm, finite = gradients.norm_and_finiteness(self._size)
        self.gradient_norm.assign(norm)
        if self.norm_limit is not None:
            gradients = gradients.scaled(self.norm_limit / tf.maximum(norm, self.norm_limit))
        if self.loss_scale is None:
            self._update(gradients)
            return
        tf.cond(finite, lambda: self._true_after(self._update, gradients), lambda: tf.constant(False))
        self.loss_scale.update(finite)

    def _update(self, gradients: Gradients) -> None:
        """Update this rank's variables, without communication."""
        self.last_rate.assign(tf.cast(tf.convert_to_tensor(self.inner.learning_rate), tf.float32))
        iterations = plain_variable(self.inner._iterations)
        # Tables first: ``inner`` counts the step, and schedules depend on the number of those before.
        for table, gradient in zip(gradients.tables, gradients.rows, strict=True):
            values = gradient.values
            if self.inner.clipvalue is not None:
                values = tf.clip_by_value(values, -self.inner.clipvalue, self.inner.clipvalue)
            assert self._table_optimizer is not None
            self._table_optimizer.apply(table, gradient.rows, values, iterations.read_value() + 1)
        if gradients.variables:
            with _only_updates(self.inner):
                self.inner.apply(gradients.dense, gradients.variables)
        else:
            iterations.assign_add(1)
        for table in gradients.tables:
            table.finish_step(iterations.read_value())


@contextmanager
def _only_updates(inner: keras.optimizers.Optimizer) -> Iterator[None]:
    """Switch off what happens over all ranks before, in the block; the options stay in the saved configuration."""
    options = ("global_clipnorm", "loss_scale_factor", "gradient_accumulation_steps")
    before = {name: getattr(inner, name) for name in options}
    for name in options:
        setattr(inner, name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(inner, name, value)


def _check(inner: keras.optimizers.Optimizer, reduction: str, accumulate: int) -> None:
    """Refuse options that are not supported over ranks."""
    check_keras_3("optimizer", inner)
    if not isinstance(inner, keras.optimizers.Optimizer):
        raise InputError("optimizer", expected="one of keras.optimizers", received=type(inner).__name__)
    if reduction not in ("mean", "sum"):
        raise InputError("reduction over the ranks", expected="'mean' or 'sum'", received=repr(reduction))
    if accumulate < 1:
        raise InputError("batches in a step (accumulate)", expected="1 or more", received=str(accumulate))
    if accumulate > 1 and inner.gradient_accumulation_steps:
        raise InputError("gradient_accumulation_steps and accumulate", expected="one of them", received="both")
    if inner.clipnorm is not None:
        raise InputError(
            "clipnorm clips every variable by itself, and no rank sees the whole of a sharded one",
            fix="use global_clipnorm, which is one norm over all that is trained",
        )
    if inner.use_ema:
        raise InputError("averages of the weights (use_ema) are not supported for sharded tables", fix="omit use_ema")
