"""States of layers: variables without gradients that a step assigns, such as moving means."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from xmc_tf.collective.batches import BatchShare
from xmc_tf.collective.blocks import patched
from xmc_tf.collective.fitting.losses import depends_on_batch, is_linear, is_mean, warn_once
from xmc_tf.collective.tables.table import are_updated_over_ranks

_AVERAGED = (
    "model {!r}: what a step assigns to {!r} is averaged over the ranks, but is not only a mean over examples. Compute "
    "it, such as a sum or a variance, from the rows of all ranks, which strategy.gather(...) returns"
)
_LINEAR = ("assign", "assign_add", "assign_sub")
_ASSIGNING = (*_LINEAR, "scatter_update", "scatter_add", "scatter_sub", "scatter_nd_update")


class StatesOverRanks:
    """The states of a model's layers. What a step assigns to them is averaged over the examples of all ranks."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._seen: dict[int, tuple[tf.Variable, bool]] = {}  # by id: each variable that was assigned, is it a state

    @contextmanager
    def averaged(self, batch: BatchShare) -> Iterator[None]:
        """Average what is assigned in the block: at once, or at its end if it is in a branch or loop of the graph.
        Warn if weights, which the optimizer changes, are assigned from this rank's examples.
        """
        graph, later = _graph(), {}

        def assigning(name: str) -> Any:
            original = getattr(ResourceVariable, name)

            def assign(variable: tf.Variable, value: Any, *args: Any, **kwargs: Any) -> Any:
                if self._is_state(variable):
                    if name in _LINEAR and _graph() is graph:
                        value = tf.convert_to_tensor(value, variable.dtype)
                        if depends_on_batch(value, batch) and not (is_mean(value, batch) and is_linear(value)):
                            warn_once(_AVERAGED.format(self._model.name, variable.name))
                        (value,) = _means([value], batch)
                    else:
                        later[id(variable)] = variable
                elif variable.trainable and not are_updated_over_ranks() and depends_on_batch(value, batch):
                    warn_once(
                        f"model {self._model.name!r}: train_step changes {variable.name!r} by what each rank computes "
                        "from its own examples. Compute it from those of all ranks, which strategy.gather(...) returns"
                    )
                return original(variable, value, *args, **kwargs)

            return assign

        with patched(ResourceVariable, **{name: assigning(name) for name in _ASSIGNING}):
            yield
        states = list(later.values())
        for state, mean in zip(states, _means([one.read_value() for one in states], batch), strict=True):
            state.assign(mean)

    def _is_state(self, variable: tf.Variable) -> bool:
        if id(variable) not in self._seen:
            self._seen[id(variable)] = variable, any(one is variable for one in states_of(self._model))
        return self._seen[id(variable)][1]


def states_of(model: keras.Model) -> list[tf.Variable]:
    """Return the variables of floating numbers without gradients of a model's layers."""
    found = []
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):  # has those of all ranks
            continue
        raw = [one for one in vars(layer).values() if isinstance(one, tf.Variable) and not one.trainable]
        found += [*(one._value for one in layer._non_trainable_variables), *raw]
    return [one for one in found if one is not None and one.dtype.is_floating]


def _graph() -> tf.Graph | None:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _means(values: list[tf.Tensor], batch: BatchShare) -> list[tf.Tensor]:
    if not values:
        return []
    return [total / batch.size for total in batch.sum([batch.part_of_mean(one) for one in values], "states")]
