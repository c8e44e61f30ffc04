import functools
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.batches import NOT_WEIGHTED, current_batch
from xmc_tf.collective.blocks import patched
from xmc_tf.collective.engines import operations
from xmc_tf.collective.keras_2 import check_keras_3
from xmc_tf.collective.optimizers.gradients import (
    Accumulator,
    Gradient,
    Gradients,
    Reduction,
    local_rows,
    split,
)
from xmc_tf.collective.optimizers.row_wise.keras_forms import (
    differences_of,
    exact_form_of,
    names_of_forms,
    row_wise_of,
    unchanged_class,
)
from xmc_tf.collective.optimizers.row_wise.table_optimizer import TableOptimizer
from xmc_tf.collective.optimizers.row_wise.updating import make_slots, update_exactly, update_rows
from xmc_tf.collective.tables.table import ShardedTable, not_replicated, table_of, updated_over_ranks
from xmc_tf.collective.tables.table_variable import load_rows, own_rows, plain_variable, whole_rows
from xmc_tf.common.errors import InputError

log = logging.getLogger(__name__)
# fp32 ends below 2^128; larger scales would turn every loss into infinity.
_LARGEST = 2.0**100


class LossScale(tf.Module):
    """A loss scale that doubles after ``growth_steps`` finite steps and halves after any other step. None: constant."""

    def __init__(self, initial: float = 2.0**15, growth_steps: int | None = 2000) -> None:
        super().__init__(name="loss_scale")
        self._growth_steps = growth_steps
        with tf.init_scope():
            self.value = tf.Variable(initial, dtype=tf.float32, trainable=False, name="value")
            self.good_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="good_steps")

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        return loss * tf.cast(self.value, loss.dtype)

    def update(self, finite: tf.Tensor) -> None:
        """Update the scale after a step. ``finite`` must be the same on all ranks."""
        if self._growth_steps is None:
            return
        good = tf.where(finite, self.good_steps + 1, tf.zeros([], tf.int64))
        grow = good >= self._growth_steps
        larger = tf.where(grow, tf.minimum(self.value * 2.0, _LARGEST), self.value)
        self.value.assign(tf.where(finite, larger, tf.maximum(self.value / 2.0, 1.0)))
        self.good_steps.assign(tf.where(grow, tf.zeros([], tf.int64), good))


def scale_of(optimizer: keras.optimizers.Optimizer) -> LossScale | None:
    """Return the scale of Keras's LossScaleOptimizer, which Keras adds under mixed_float16, and None for others."""
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return None
    return LossScale(float(optimizer.initial_scale), optimizer.dynamic_growth_steps)


# Optimizers that update each number by itself, so that the shards of a table can be updated one by one.
ELEMENTWISE = tuple(dict.fromkeys((*names_of_forms(), "Adadelta", "Adamax", "Nadam", "Lion")))
# Why others cannot. Lamb does in one process, with exact=True.
_CAUSES = {
    "Lamb": "it divides by norms of whole tables",
    "Adafactor": "it keeps means over the rows of a whole table",
    "Muon": "it treats a table as a matrix, unless its path has the word embedding",
    "ScheduleFreeAdamW": "it starts its slots with the values of the variables",
}


class CollectiveOptimizer(keras.optimizers.Optimizer):
    """An optimizer that combines the gradients of all ranks and makes the same step on each rank. ``inner`` updates
    replicated variables. Its row-wise form, or ``table_optimizer``, updates those rows of sharded tables that a step
    looks up; with ``exact``, ``inner`` updates all rows. ``apply_gradients`` expects gradients of ``scale_loss(loss)``.
    """

    built: bool
    trained: list[tf.Variable]

    def __init__(
        self,
        inner: keras.optimizers.Optimizer,
        size: int,
        *,
        table_optimizer: TableOptimizer | None = None,
        reduction: Reduction = "mean",
        accumulate: int = 1,
        loss_scale: LossScale | None = None,
        exact: bool = False,
    ) -> None:
        _check(inner, reduction, accumulate)
        if exact and table_optimizer is not None:
            raise InputError("table_optimizer cannot be used with exact=True", expected="one of them", received="both")
        super().__init__(learning_rate=0.0, name=inner.name)
        self.of_user, scale = inner, scale_of(inner)
        inner = inner if scale is None else inner.inner_optimizer
        self.inner, self.exact, self._size, self._reduction = inner, exact, size, reduction
        self._table_optimizer = table_optimizer
        self._form = exact_form_of(inner, size) if exact else None
        # With plain SGD, a step with the sum of gradients equals that with the gradients one by one.
        clips = inner.clipnorm or inner.global_clipnorm or inner.clipvalue
        self._each_id = table_optimizer is None and (type(inner) is not keras.optimizers.SGD or bool(clips))
        self._state_of_tables: dict[int, tuple[ShardedTable, str]] = {}  # by the id of a variable of ``inner``
        self._said = table_optimizer is not None
        # With a rate that depends on the step, Keras counts batches.
        self._counts_batches = bool(inner.gradient_accumulation_steps) and not exact
        accumulate = inner.gradient_accumulation_steps or accumulate
        if inner.use_ema and accumulate > 1 and not exact:
            raise InputError(
                "use_ema (averages of the weights) does not support the accumulation of gradients",
                expected="averages after each step; Keras averages after each batch",
                received=f"{accumulate} batches in a step",
                fix="CollectiveStrategy(exact=True), or omit one of them",
            )
        if exact and accumulate > 1:
            inner.gradient_accumulation_steps = accumulate
        self._accumulator = Accumulator(accumulate) if accumulate > 1 and not exact else None
        if loss_scale is None and inner.loss_scale_factor is not None:
            loss_scale = LossScale(float(inner.loss_scale_factor), growth_steps=None)
        self.loss_scale = scale if loss_scale is None else loss_scale
        self._warned = False
        with tf.init_scope():
            # Neither is saved. The norm, before clipping, is only computed with clipping or loss scaling.
            self.gradient_norm = tf.Variable(0.0, trainable=False, name="gradient_norm")
            self.last_rate = tf.Variable(0.0, trainable=False, name="last_rate")

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that plain Keras would have, for ``isinstance``."""
        return type(vars(self).get("of_user", self))

    @property
    def inner_optimizer(self) -> keras.optimizers.Optimizer:
        """The user's optimizer, where callbacks such as SwapEMAWeights look for it."""
        return self.inner

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the user's optimizer, such as ``beta_1``."""
        if name == "inner" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def iterations(self) -> keras.Variable:
        return self.inner.iterations if self.exact else self._steps

    @property
    def _steps(self) -> keras.Variable:
        """The first variable of ``inner``, which counts its steps, also where ``inner.iterations`` divides them."""
        return self.inner.variables[0]

    @property
    def learning_rate(self) -> Any:
        """The learning rate of replicated variables and tables. With a schedule, it is that of the next step."""
        return self.inner.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        """Set the learning rate or schedule of replicated variables and tables."""
        self.inner.learning_rate = value

    @property
    def variables(self) -> list[keras.Variable]:
        """The state of replicated variables. The state of tables is in ``table.slots``."""
        return [one for one in self.inner.variables if id(one) not in self._state_of_tables]

    @property
    def batches_per_step(self) -> int:
        return self.inner.gradient_accumulation_steps or (self._accumulator.every if self._accumulator else 1)

    def __dir__(self) -> list[str]:
        """Return the attributes that Keras saves. ``inner`` is excluded, because it shares this optimizer's state."""
        return [name for name in super().__dir__() if name not in ("inner", "inner_optimizer", "of_user")]

    def get_config(self) -> dict:
        """Return the configuration in plain Keras, so that saved models do not depend on the number of ranks."""
        return self.of_user.get_config()

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Multiply the loss by the weight of this rank's batch and by the loss scale, where these apply."""
        batch = current_batch()
        if batch is not None and self._reduction == "mean":
            loss = batch.scale_loss(loss)
        return loss if self.loss_scale is None else self.loss_scale.scaled(loss)

    @tf.autograph.experimental.do_not_convert
    def build(self, variables: Iterable[tf.Variable]) -> None:
        """Create the slots, and broadcast the values of replicated variables from rank 0."""
        if self.built:
            return
        object.__setattr__(self, "trained", list(variables))  # Keras would track them as variables of the optimizer
        replicated = [variable for variable in self.trained if table_of(variable) is None]
        if self._size > 1:
            # While the first step is traced, variables that it has made have no values yet. They are made from equal
            # seeds, and ``fit`` checks that they are equal.
            with tf.init_scope():
                operations.broadcast_variables([plain_variable(one) for one in replicated if _has_value(one)])
        tables = [table for variable in self.trained if (table := table_of(variable)) is not None]
        self.check_tables([table.name for table in tables])
        if stacks := [table.name for table in tables if self.exact and self.inner.clipnorm and len(table.members) > 1]:
            raise InputError(
                f"clipnorm cannot be used with strategy.embeddings ({', '.join(stacks)})",
                expected="a separate variable for each table, because clipnorm clips each variable by itself",
                fix="use global_clipnorm, or strategy.embeddings(..., joint=False)",
            )
        with self._only_updates(), self._slots_of_tables():
            self.inner.build([local_rows(one) for one in self.trained] if self.exact else replicated)
        # ``exclude_from_weight_decay(var_names=...)`` finds the rows of layers by their names in Keras, and keeps it.
        for variable in self.trained:
            if (table := table_of(variable)) is not None and isinstance(variable, keras.Variable):
                name = f"{variable.path.rpartition('/')[0]}/embeddings:0"
                self.inner._use_weight_decay(SimpleNamespace(name=name, _unique_id=table.variable._unique_id))
        if not self.exact:
            for table in tables:
                make_slots(self._row_wise(), table)
        self.built = True

    def check_tables(self, names: Sequence[str]) -> None:
        """Raise InputError for options that sharded tables do not support. Warn once if training differs from Keras."""
        if not names:
            return
        if self.exact:
            kind, known = unchanged_class(self.inner), [getattr(keras.optimizers, name) for name in ELEMENTWISE]
            if kind not in known and (self._size > 1 or kind.__name__ in {*_CAUSES} - {"Lamb"}):
                cause = _CAUSES.get(kind.__name__, "xmc_tf does not know whether it updates each number by itself")
                raise InputError(
                    f"{kind.__name__} cannot update the shards of a table one by one ({', '.join(names)}): {cause}",
                    expected=f"{', '.join(ELEMENTWISE)}, or a subclass that changes nothing of the update",
                    received=kind.__name__,
                    fix="use one of these optimizers, or create the embedding outside embedding_scope()",
                )
            return
        self._row_wise()
        if self.inner.use_ema:
            raise InputError(
                f"use_ema (averages of the weights) does not support sharded tables ({', '.join(names)})",
                fix="CollectiveStrategy(exact=True), or omit use_ema",
            )
        if self._said or not (differences := differences_of(self._row_wise(), self.inner)):
            return
        self._said = True
        if operations.is_first_rank():
            log.warning(
                "%s updates only the rows of %s that a step looks up: %s. To train as plain Keras does, at the cost of "
                "updating all rows in each step: CollectiveStrategy(exact=True)",
                type(self.inner).__name__,
                ", ".join(names),
                differences,
            )

    def _row_wise(self) -> TableOptimizer:
        if self._table_optimizer is None:
            self._table_optimizer = row_wise_of(self.inner)
        return self._table_optimizer

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(self, grads_and_vars: Iterable[tuple[Gradient | None, tf.Variable]]) -> keras.Variable:
        """Make a step, or accumulate the gradients for one. All ranks must call it."""
        self.apply(*(list(part) for part in zip(*grads_and_vars, strict=True)))
        return self.iterations

    @tf.autograph.experimental.do_not_convert
    def apply(self, grads: Sequence[Gradient | None], trainable_variables: Iterable[tf.Variable] | None = None) -> None:
        """Update the variables (default: those of ``build``), or accumulate gradients. All ranks must call it."""
        variables = list(self.trained if trainable_variables is None else trainable_variables)
        if not self.built:
            with tf.init_scope():
                have_values = all(map(_has_value, variables))
            # In the graph of a step that makes the variables, as in Keras: some slots begin with the variables' values.
            with tf.init_scope() if have_values else nullcontext():
                self.build(variables)
        batch = current_batch()
        if batch is not None and self._size > 1:
            self._warn_of_changed_gradients(grads, batch.gradients)
        if batch is not None and not batch.is_weighted and self._reduction != "sum":
            with tf.device("/cpu:0"):  # assertions do nothing on a GPU
                tf.debugging.assert_equal(batch.is_even, True, NOT_WEIGHTED)
        with tf.name_scope(self.name):
            each_id = self._each_id and self._accumulator is None
            found = split(grads, variables, rowwise=not self.exact, each_id=each_id)
            if self.loss_scale is not None:
                found = found.scaled(1.0 / self.loss_scale.value)
            if (accumulator := self._accumulator) is None:
                self._step(found)
                return
            accumulator.add(found)
            # The count is the same on all ranks, so all of them take the same branch.
            _do_if(accumulator.full(), lambda: self._step(accumulator.take(found)), lambda: _constrain(found.variables))

    def _warn_of_changed_gradients(self, gradients: Sequence[Gradient | None], of_tapes: Sequence[Any]) -> None:
        known = {id(one) for one in of_tapes}
        if self._warned or all(one is None or id(one) in known for one in gradients):
            return
        self._warned = True
        if operations.is_first_rank():
            log.warning(
                "train_step changes the gradients before the optimizer applies them: each rank changes those of its "
                "own examples. Sums and constant factors train as in plain Keras. For tf.clip_by_global_norm, "
                "tf.clip_by_norm and tf.clip_by_value, use the options global_clipnorm, clipnorm and clipvalue of the "
                "optimizer instead"
            )

    def save_own_variables(self, store: Any) -> None:
        """Save the state in the form in which ``inner`` would save it in a single process."""
        for number, (variable, table, slot) in enumerate(self._state()):
            store[str(number)] = variable.numpy() if table is None else whole_rows(table, slot)

    def load_own_variables(self, store: Any) -> None:
        """Load the state that an optimizer saved in a single process, or on any number of ranks."""
        state = self._state()
        if len(store.keys()) != len(state):
            # As Keras: weights may be loaded into a model with another optimizer.
            warnings.warn(
                f"the saved state of the optimizer, {len(store.keys())} variables, is not loaded: {self.inner.name!r} "
                f"has {len(state)}",
                stacklevel=2,
            )
            return
        for number, (variable, table, slot) in enumerate(state):
            if table is None:
                variable.assign(np.asarray(store[str(number)]))
            else:
                load_rows(table, store[str(number)], slot)

    def finalize_variable_values(self, var_list: Sequence[tf.Variable]) -> None:
        """Replace variables by their moving averages at the end of ``fit`` if ``inner`` keeps them (use_ema)."""
        with own_rows():
            self.inner.finalize_variable_values(
                [local_rows(one) for one in var_list if self.exact or table_of(one) is None]
            )

    def _state(self) -> list[tuple[Any, ShardedTable | None, str]]:
        """Return (variable, table, slot name) for each variable that a single process would save, in its order."""
        own: list[tuple[Any, ShardedTable | None, str]] = []
        if self.of_user is not self.inner and self.loss_scale is not None:  # as in Keras's LossScaleOptimizer
            kept = [*self.of_user.variables[:2], self.loss_scale.good_steps, self.loss_scale.value]
            own = [(one, None, "") for one in kept]
        if not self.built or self.exact:
            return own + [(one, *self._state_of_tables.get(id(one), (None, ""))) for one in self.inner.variables]
        replicated = [variable for variable in self.trained if table_of(variable) is None]
        every = list(self.inner.variables)
        slots = len(every) - 2 + (not isinstance(self.inner.learning_rate, keras.Variable))
        each = slots // max(1, len(replicated))
        first = len(every) - each * len(replicated)
        state = own + [(variable, None, "") for variable in every[:first]]
        rest = iter(every[first:])
        for table in map(table_of, self.trained):
            if table is None:
                state += [(next(rest), None, "") for _ in range(each)]
            else:
                state += [(slot, table, name) for name, slot in table.slots.items()]
        return state

    def _step(self, gradients: Gradients) -> None:
        gradients = gradients.summed(self._size)
        if self._reduction == "mean" and self._size > 1:
            gradients = gradients.scaled(1.0 / self._size)
        if self.loss_scale is None:
            self._update(gradients)
            return
        squares, finite = gradients.squares_and_finiteness(self._size)
        self.gradient_norm.assign(tf.sqrt(tf.reduce_sum(squares)))
        _do_if(finite, lambda: self._update(gradients))
        self.loss_scale.update(finite)

    def _clipped(self, gradients: Gradients) -> Gradients:
        each, total = self.inner.clipnorm, self.inner.global_clipnorm
        if not each and not total:
            return gradients
        squares, _ = gradients.squares_and_finiteness(self._size)
        self.gradient_norm.assign(tf.sqrt(tf.reduce_sum(squares)))
        return gradients.clipped(squares, each, total)

    def _update(self, gradients: Gradients) -> None:
        if not self.exact:
            gradients = self._clipped(gradients)
        with self._only_updates(gradients.variables):
            self.last_rate.assign(tf.cast(tf.convert_to_tensor(self.inner.learning_rate), tf.float32))
            iterations = plain_variable(self._steps)
            # Tables first: ``inner`` counts the step, and schedules depend on the number of those before.
            for table, gradient in zip(gradients.tables, gradients.rows, strict=True):
                values = gradient.values
                if self.inner.clipvalue is not None:
                    values = tf.clip_by_value(values, -self.inner.clipvalue, self.inner.clipvalue)
                update_rows(self._row_wise(), table, gradient.rows, values, iterations.read_value() + 1)
            if gradients.variables:
                self.inner.apply(gradients.of_variables, gradients.variables)
            else:
                iterations.assign_add(1)
            for table in gradients.tables:
                table.finish_step(iterations.read_value())

    @contextmanager
    def _only_updates(self, variables: Sequence[tf.Variable] = ()) -> Iterator[None]:
        """In the block, disable the options of ``inner`` that this optimizer handles. Its configuration keeps them."""
        inner = self.inner
        changed: dict[str, Any] = {"loss_scale_factor": None}
        if self._form is not None:
            changed["update_step"] = functools.partial(self._update_exactly, self._form)
        if not self.exact:
            changed |= {"global_clipnorm": None, "clipnorm": None, "gradient_accumulation_steps": None}
            schedule = inner._learning_rate
            if self._counts_batches and isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
                every = self.batches_per_step
                changed["_learning_rate"] = lambda: schedule(self._steps * every + (every - 1))
        elif inner.clipnorm or inner.global_clipnorm:
            changed["_clip_gradients"] = lambda of_variables: (
                self._clipped(Gradients(list(variables), of_variables, [], [])).of_variables
            )
        with updated_over_ranks(), own_rows(), patched(inner, **changed):
            yield

    def _update_exactly(self, form: TableOptimizer, gradient: Gradient, variable: tf.Variable, rate: tf.Tensor) -> None:
        """Update a table as Keras does, which reads and writes all its rows several times."""
        table = table_of(variable)
        if table is None or not isinstance(gradient, tf.IndexedSlices):
            type(self.inner).update_step(self.inner, gradient, variable, rate)
        else:
            update_exactly(form, table, gradient, self.inner.iterations + 1)

    @contextmanager
    def _slots_of_tables(self) -> Iterator[None]:
        """In the block, store variables that ``inner`` creates for tables as slots, which checkpoints save by rows."""
        create = self.inner.add_variable_from_reference

        @functools.wraps(create)
        def create_and_keep(reference_variable: Any, name: str | None = None, initializer: Any = "zeros") -> Any:
            table = table_of(reference_variable)
            if table is None:
                return create(reference_variable, name=name, initializer=initializer)
            with not_replicated():
                made = create(reference_variable, name=name, initializer=initializer)
            table.slots[name or "var"] = plain_variable(made)
            self._state_of_tables[id(made)] = (table, name or "var")
            return made

        with patched(self.inner, add_variable_from_reference=create_and_keep):
            yield


def _has_value(variable: tf.Variable | keras.Variable) -> bool:
    """Return whether a variable has a value, outside of graphs. One that a step makes has none while it is traced."""
    return table_of(variable) is not None or bool(plain_variable(variable).is_initialized())


def _do_if(condition: tf.Tensor, work: Callable[[], None], otherwise: Callable[[], None] = lambda: None) -> None:
    def done(work: Callable[[], None]) -> tf.Tensor:
        work()
        return tf.constant(True)

    tf.cond(condition, functools.partial(done, work), functools.partial(done, otherwise))


def _constrain(variables: Iterable[Any]) -> None:
    """Apply the constraints of variables, as Keras does after each batch, also if it only accumulates gradients."""
    for variable in variables:
        if (constraint := getattr(variable, "constraint", None)) is not None:
            variable.assign(constraint(variable))


def _check(inner: keras.optimizers.Optimizer, reduction: str, accumulate: int) -> None:
    check_keras_3("optimizer", inner)
    if type(inner).__name__ == "MultiOptimizer":
        raise InputError(
            "MultiOptimizer cannot work over all ranks",
            expected="one optimizer of Keras, and optionally another for the tables",
            received=f"{len(inner.optimizers)} optimizers",
            fix="strategy.optimizer(keras.optimizers.Adam(1e-3), table_optimizer=RowAdagrad(0.1))",
        )
    if not isinstance(inner, keras.optimizers.Optimizer):
        raise InputError("not a Keras optimizer", expected="one of keras.optimizers", received=type(inner).__name__)
    if reduction not in ("mean", "sum"):
        raise InputError("unknown reduction over the ranks", expected="'mean' or 'sum'", received=repr(reduction))
    if accumulate < 1:
        raise InputError("too few batches in a step (accumulate)", expected="1 or more", received=str(accumulate))
    if accumulate > 1 and inner.gradient_accumulation_steps:
        raise InputError("gradient_accumulation_steps and accumulate conflict", expected="one of them", received="both")
