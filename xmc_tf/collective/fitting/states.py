"""States of layers: variables without gradients that a step assigns, such as moving means."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from xmc_tf.collective.batches import BatchShare
from xmc_tf.collective.blocks import patched
from xmc_tf.collective.fitting.losses import depends_on_batch, is_linear, is_mean
from xmc_tf.collective.tables.table import are_updated_over_ranks, table_of
from xmc_tf.collective.tables.table_variable import plain_variable

_AVERAGED = (
    "model {!r}: what a step assigns to {!r} is averaged over the ranks, which is right only for means over examples. "
    "Compute anything else, such as a sum or a variance, from the rows of all ranks, which strategy.gather(...) returns"
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
                    is_whole = name in _LINEAR
                    if is_whole:
                        value = tf.convert_to_tensor(value, variable.dtype)
                    depends = any(depends_on_batch(one, batch) for one in (value, *args))
                    if depends and not (is_whole and is_mean(value, batch, whole=True) and is_linear(value, batch)):
                        self._warn(variable, batch)
                    if is_whole and _graph() is graph:
                        value = self._mean(variable, value, batch)
                    else:
                        later[id(variable)] = variable
                elif variable.trainable and not are_updated_over_ranks() and depends_on_batch(value, batch):
                    batch.warn(
                        f"model {self._model.name!r}: train_step changes {variable.name!r} by what each rank computes "
                        "from its own examples. Compute it from those of all ranks, which strategy.gather(...) returns"
                    )
                return original(variable, value, *args, **kwargs)

            return assign

        with patched(ResourceVariable, **{name: assigning(name) for name in _ASSIGNING}):
            yield
        for state in later.values():
            state.assign(self._mean(state, state.read_value(), batch))

    def _mean(self, state: tf.Variable, value: tf.Tensor, batch: BatchShare) -> tf.Tensor:
        """Return the mean over the examples of all ranks. In an eager step, warn if the ranks' values differ."""
        (total,) = batch.sum([batch.part_of_mean(value)], "states")
        mean = total / batch.size
        if tf.executing_eagerly() and batch.gathers == 0 and not np.allclose(value, mean, 1e-4, 1e-6):
            self._warn(state, batch)
        return mean

    def _warn(self, state: tf.Variable, batch: BatchShare) -> None:
        batch.warn(_AVERAGED.format(self._model.name, state.name))

    def _is_state(self, variable: tf.Variable) -> bool:
        if id(variable) not in self._seen:
            self._seen[id(variable)] = variable, any(one is variable for one in states_of(self._model))
        return self._seen[id(variable)][1]


def states_of(model: keras.Model) -> list[tf.Variable]:
    """Return the variables of floating numbers without gradients of a model's layers."""
    layers = list(model._flatten_layers())
    raw = [one for layer in layers for one in vars(layer).values() if isinstance(one, tf.Variable)]
    # BatchNormalization has those of all ranks already.
    kind = keras.layers.BatchNormalization
    of_ranks = {id(one) for layer in layers if isinstance(layer, kind) for one in layer.weights}
    own = [one for one in (*model.non_trainable_weights, *raw) if id(one) not in of_ranks and table_of(one) is None]
    # The trained weights of frozen layers are none: TensorFlow's variables keep how they were made.
    return [one for one in map(plain_variable, own) if one is not None and not one.trainable and one.dtype.is_floating]


def _graph() -> tf.Graph | None:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
