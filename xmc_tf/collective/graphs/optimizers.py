"""Optimizers of TensorFlow 1 (``tf.compat.v1.train``), which within ``strategy.scope()`` work over all ranks.

``compute_gradients`` returns the mean of the ranks' gradients, so that ``apply_gradients`` makes the same step on all
ranks. Gradients that are changed in between must stay equal on all ranks.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.engines.graph_order import in_plain_graph, of_graph
from xmc_tf.collective.optimizers.gradients import Gradient
from xmc_tf.collective.tables.table import not_replicated, table_of
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator

v1 = tf.compat.v1


class _Marked:
    """The operations of a graph whose results are gradients: equal on all ranks, or those of this rank's rows."""

    def __init__(self) -> None:
        self.equal: set[tf.Operation] = set()
        self.of_rows: set[tf.Operation] = set()


def _marked() -> _Marked:
    return of_graph("gradients", _Marked)


@contextmanager
def optimizers_over_ranks(communicator: Communicator) -> Iterator[None]:
    """Make the optimizers of TensorFlow 1 work over all ranks within the block."""
    if communicator.size == 1:
        yield
        return
    owner = v1.train.Optimizer
    compute, apply = owner.compute_gradients, owner.apply_gradients

    @wraps(compute)
    def compute_gradients(self: Any, loss: Any, var_list: Any = None, *args: Any, **kwargs: Any) -> list[Any]:
        _check_graph(self)
        if var_list is None:
            var_list = v1.trainable_variables()
        variables = tf.nest.flatten(var_list)
        pairs = compute(self, loss, [_own(one) for one in variables], *args, **kwargs)
        gradients = _means([gradient for gradient, _ in pairs], variables, communicator.size)
        return list(zip(gradients, variables, strict=True))

    @wraps(apply)
    def apply_gradients(self: Any, grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        _check_graph(self)
        pairs = list(grads_and_vars)
        for gradient, variable in pairs:
            if gradient is not None:
                _check_equal(gradient, variable)
        with not_replicated():  # slots, which start equal, and those of rows
            return apply(self, [(gradient, _own(variable)) for gradient, variable in pairs], *args, **kwargs)

    owner.compute_gradients, owner.apply_gradients = compute_gradients, apply_gradients
    try:
        yield
    finally:
        owner.compute_gradients, owner.apply_gradients = compute, apply


def _own(variable: tf.Variable) -> tf.Variable:
    """Return the variable of this rank's rows, if it is sharded, otherwise the variable itself."""
    table = table_of(variable)
    return variable if table is None else table.variable


def _means(gradients: Sequence[Gradient | None], variables: Sequence[tf.Variable], size: int) -> list[Gradient | None]:
    """Return the means of the ranks' gradients; of a sharded variable, those of this rank's rows."""
    marked, found = _marked(), list(gradients)
    replicated: dict[int, tf.Tensor] = {}
    for at, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
        if gradient is None:
            continue
        if table_of(variable) is None:
            replicated[at] = tf.convert_to_tensor(gradient)  # sparse gradients have different rows on each rank
            continue
        gradient = gradient if isinstance(gradient, tf.IndexedSlices) else tf.IndexedSlices(
            gradient, tf.range(tf.shape(gradient)[0])
        )  # fmt: skip
        values = gradient.values / size
        found[at] = tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        marked.of_rows.add(values.op)
    if replicated:
        sums = operations.grouped_sum(list(replicated.values()), "xmc_tf/gradients")
        for at, total in zip(replicated, sums, strict=True):
            mean = found[at] = total / tf.cast(size, total.dtype)
            marked.equal.add(mean.op)
    return found


def _check_equal(gradient: Gradient, variable: tf.Variable) -> None:
    """Refuse a gradient that differs between ranks."""
    marked = _marked()
    if table_of(variable) is not None:
        if not isinstance(gradient, tf.IndexedSlices) or gradient.values.op not in marked.of_rows:
            raise InputError(
                f"the gradient of the sharded variable {variable.name!r} is not as compute_gradients returned it",
                expected="the gradient of optimizer.compute_gradients(loss), unchanged: no rank sees all of it",
                fix="clip and scale the gradients of the other variables only; or train the model with Keras, "
                "whose optimizers have global_clipnorm",
            )
        return
    found, seen = False, set()
    todo = [gradient.values.op, gradient.indices.op] if isinstance(gradient, tf.IndexedSlices) else [gradient.op]
    while todo:
        operation = todo.pop()
        if operation in seen:
            continue
        seen.add(operation)
        if operation in marked.of_rows:
            raise InputError(
                f"the gradient of {variable.name!r} depends on that of a sharded variable, which differs between ranks",
                expected="gradients that are computed from those of replicated variables",
                fix="leave the sharded variables out of tf.clip_by_global_norm; or train the model with Keras, whose "
                "optimizers have global_clipnorm",
            )
        if operation in marked.equal:
            found = True
        else:
            todo += [tensor.op for tensor in operation.inputs]
    if not found:
        raise InputError(
            f"the gradient of {variable.name!r} is that of this rank only",
            expected="gradients of optimizer.compute_gradients(loss), which are means over the ranks",
            received=f"{gradient.name}",
            fix="call optimizer.compute_gradients(loss, var_list) within strategy.scope(), not tf.gradients",
        )


def _check_graph(optimizer: Any) -> None:
    """Refuse an optimizer of TensorFlow 1 outside of its graphs."""
    if not in_plain_graph():
        raise InputError(
            f"{type(optimizer).__name__} of tf.compat.v1 outside of a tf.Graph",
            expected="within strategy.scope(), a tf.Graph that a session runs",
            fix="use an optimizer of Keras: strategy.optimizer(keras.optimizers.Ftrl(0.1))",
        )
