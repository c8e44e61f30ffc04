"""TensorFlow 1 programs on several ranks: variables of a ``tf.Graph`` and optimizers of ``tf.compat.v1.train``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

# Private, but ``tf.nn.embedding_lookup`` and sessions know variables by this class (tests/collective/world_graphs.py).
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, ResourceVariable

from xmc_tf.collective.blocks import patched
from xmc_tf.collective.engines import operations
from xmc_tf.collective.engines.graph_order import in_plain_graph, of_graph, of_initial_values
from xmc_tf.collective.optimizers.gradients import Gradient, local_rows
from xmc_tf.collective.tables.initial_values import FunctionInitializer, Initializer
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.table import ShardedTable, not_replicated, table_of
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator

v1 = tf.compat.v1
MakeTable = Callable[..., ShardedTable]


class ShardedVariable(ResourceVariable):
    """A graph variable that represents all rows of a sharded table. All ranks must take part in its lookups."""

    def __init__(self, table: ShardedTable) -> None:
        own = table.variable
        BaseResourceVariable.__init__(
            self,
            trainable=own.trainable,
            shape=[table.rows, table.dim],
            dtype=own.dtype,
            handle=own.handle,
            unique_id=own._unique_id,
            handle_name=own.name.removesuffix(":0"),
            initial_value=own._initial_value,
            initializer_op=own.initializer,
            is_initialized_op=own._is_initialized_op,
            in_graph_mode=True,
            synchronization=own.synchronization,
            aggregation=own.aggregation,
        )
        self.sharded_table = table
        self._graph_element = self._refused_when_run()

    @property
    def device(self) -> str:
        """The CPU; if it equaled the device of the ids (often ""), ``embedding_lookup_sparse`` would read all rows."""
        return "/device:CPU:0"

    def sparse_read(self, indices: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Return rows, as ``tf.nn.embedding_lookup`` requests them. All ranks must call it."""
        return lookup(self.sharded_table, indices)

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        # A session makes a Saver, which reads without a copy, even if it never saves.
        return self._refused_when_run() if no_copy else self._refuse()

    def _refused_when_run(self) -> tf.Tensor:
        with tf.control_dependencies([tf.numpy_function(self._refuse, [], tf.bool)]):
            return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        table = self.sharded_table
        raise InputError(
            f"variable {table.name!r} is sharded over {table.size} ranks, and this use needs all of its rows",
            expected="tf.nn.embedding_lookup(variable, ids), or embedding_lookup_sparse",
            received="a read, a write or a checkpoint of the whole variable",
            fix="for the best rows, strategy.top_k(variable, queries, k); for a checkpoint or an export, the same "
            "model in Keras; or create the variable outside embedding_scope()",
        )

    assign = assign_add = assign_sub = gather_nd = _lazy_read = _refuse
    scatter_add = scatter_div = scatter_max = scatter_min = scatter_mul = scatter_sub = scatter_update = _refuse
    scatter_nd_add = scatter_nd_sub = scatter_nd_update = batch_scatter_update = _refuse


@contextmanager
def sharded_get_variable(make: MakeTable, wants: Callable[[int, int], bool]) -> Iterator[None]:
    """Shard matrices that ``get_variable`` creates in the block, if they have a partitioner or ``wants(rows, dim)``."""
    if not in_plain_graph():
        yield
        return
    made: dict[str, tf.Variable] = of_graph("variables", dict)

    def get(
        getter: Callable[..., Any],
        name: str,
        shape: Any = None,
        dtype: Any = tf.float32,
        initializer: Any = None,
        partitioner: Any = None,
        **options: Any,
    ) -> Any:
        size: Any = tf.TensorShape(shape)
        matrix = size.rank == 2 and size.is_fully_defined() and tf.as_dtype(dtype) == tf.float32
        if not matrix or not (partitioner or wants(*size.as_list())):
            return getter(name, shape=shape, dtype=dtype, initializer=initializer, partitioner=partitioner, **options)
        reuse = options.get("reuse")
        if (name in made) != bool(reuse) and reuse is not v1.AUTO_REUSE:
            raise ValueError(f"Variable {name} {'exists' if name in made else 'is new'}, reuse={reuse}: use AUTO_REUSE")
        if name not in made:
            if options.get("regularizer") or options.get("constraint"):
                raise InputError(
                    f"sharded variable {name!r} has a regularizer or a constraint",
                    expected="none",
                    fix="leave it out, or create the variable outside embedding_scope()",
                )
            trainable = options.get("trainable") is not False
            made[name] = variable_of(make(name, *size.as_list(), _of_keras(initializer), trainable=trainable))
        return made[name]

    with v1.variable_scope(v1.get_variable_scope(), custom_getter=get, auxiliary_name_scope=False):
        yield


def variable_of(table: ShardedTable) -> tf.Variable:
    """Return the variable that represents all rows of a table. The first call adds it to the graph's collections."""
    own = table.variable
    if not hasattr(own, "of_all_rows"):
        own.of_all_rows = own if table.size == 1 else ShardedVariable(table)
        v1.add_to_collection(v1.GraphKeys.GLOBAL_VARIABLES, own.of_all_rows)
        if own.trainable:
            v1.add_to_collection(v1.GraphKeys.TRAINABLE_VARIABLES, own.of_all_rows)
    return own.of_all_rows


def _of_keras(initializer: Any) -> Initializer:
    """Convert an initializer of ``get_variable`` to a Keras one, whose values do not depend on the number of ranks."""
    if initializer is None:
        return keras.initializers.GlorotUniform()  # TensorFlow's default
    if isinstance(initializer, type):
        initializer = initializer()
    if tf.is_tensor(initializer):
        raise InputError(
            "invalid initial values of a sharded variable", expected="an initializer or an array", received="a tensor"
        )
    if not callable(initializer):
        return np.asarray(initializer, np.float32)
    like = getattr(keras.initializers, type(initializer).__name__, None)
    if type(initializer).__module__.startswith("tensorflow.") and like is not None:
        config = {key: value for key, value in initializer.get_config().items() if key != "dtype"}
        return like(**config)
    return FunctionInitializer(lambda shape, dtype: initializer(shape, dtype=tf.as_dtype(dtype)))


def from_rank_0(initial_value: Any, rank: int) -> Callable[[], tf.Tensor]:
    """Return a function that computes a replicated variable's initial value: on all ranks, that of rank 0."""

    def value() -> tf.Tensor:
        own = tf.convert_to_tensor(initial_value() if callable(initial_value) else initial_value)
        if not (own.dtype.is_floating or own.dtype.is_integer):
            return own
        with of_initial_values():
            shared = operations.allreduce_sum(own if rank == 0 else tf.zeros_like(own), "xmc_tf/initial_value")
        return tf.ensure_shape(shared, own.shape)

    return value


@contextmanager
def creator_in_graphs(creator: Callable[..., tf.Variable]) -> Iterator[None]:
    """Apply a variable creator in every ``tf.Graph`` that is entered within the block."""
    original = tf.Graph.as_default

    @contextmanager
    def with_creator(graph: tf.Graph) -> Iterator[tf.Graph]:
        with original(graph), tf.variable_creator_scope(creator):
            yield graph

    def as_default(graph: tf.Graph) -> AbstractContextManager[tf.Graph]:
        # A function's graph has the creators of the one in which it is traced.
        return original(graph) if graph.building_function else with_creator(graph)

    with patched(tf.Graph, as_default=as_default):
        yield


def _marked() -> tuple[set[tf.Operation], set[tf.Operation]]:
    """Return two sets of a graph's operations: those of mean gradients, and those of gradients of this rank's rows."""
    return of_graph("equal_gradients", set), of_graph("gradients_of_rows", set)


@contextmanager
def optimizers_over_ranks(communicator: Communicator) -> Iterator[None]:
    """Make TensorFlow 1 optimizers average gradients over all ranks within the block."""
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
        pairs = compute(self, loss, [local_rows(one) for one in variables], *args, **kwargs)
        gradients = _means([gradient for gradient, _ in pairs], variables, communicator.size)
        return list(zip(gradients, variables, strict=True))

    @wraps(apply)
    def apply_gradients(self: Any, grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        _check_graph(self)
        pairs = list(grads_and_vars)
        for gradient, variable in pairs:
            if gradient is not None:
                _check_equal(gradient, variable)
        with not_replicated():  # slots start equal on all ranks, or belong to this rank's rows
            return apply(self, [(gradient, local_rows(variable)) for gradient, variable in pairs], *args, **kwargs)

    with patched(owner, compute_gradients=compute_gradients, apply_gradients=apply_gradients):
        yield


def _means(gradients: Sequence[Gradient | None], variables: Sequence[tf.Variable], size: int) -> list[Gradient | None]:
    """Return the mean gradients over the ranks. For a sharded variable, return those of this rank's rows."""
    (equal, of_rows), found = _marked(), list(gradients)
    replicated: dict[int, tf.Tensor] = {}
    for at, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
        if gradient is None:
            continue
        if table_of(variable) is None:
            replicated[at] = tf.convert_to_tensor(gradient)  # sparse gradients have different rows on each rank
            continue
        if not isinstance(gradient, tf.IndexedSlices):
            gradient = tf.IndexedSlices(gradient, tf.range(tf.shape(gradient)[0]))
        values = gradient.values / size
        found[at] = tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        of_rows.add(values.op)
    if replicated:
        sums = operations.grouped_sum(list(replicated.values()), "xmc_tf/gradients")
        for at, total in zip(replicated, sums, strict=True):
            mean = found[at] = total / tf.cast(size, total.dtype)
            equal.add(mean.op)
    return found


def _check_equal(gradient: Gradient, variable: tf.Variable) -> None:
    equal, of_rows = _marked()
    if table_of(variable) is not None:
        if not isinstance(gradient, tf.IndexedSlices) or gradient.values.op not in of_rows:
            raise InputError(
                f"the gradient of sharded variable {variable.name!r} is not the one that compute_gradients returned",
                expected="the gradient of optimizer.compute_gradients(loss), unchanged, because no rank has all of it",
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
        if operation in of_rows:
            raise InputError(
                f"the gradient of {variable.name!r} depends on that of a sharded variable, which differs between ranks",
                expected="gradients that are computed from those of replicated variables",
                fix="leave the sharded variables out of tf.clip_by_global_norm; or train the model with Keras, whose "
                "optimizers have global_clipnorm",
            )
        if operation in equal:
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
    """Raise InputError if a TensorFlow 1 optimizer is used outside of a plain graph."""
    if not in_plain_graph():
        raise InputError(
            f"{type(optimizer).__name__} of tf.compat.v1 is used outside of a tf.Graph",
            expected="within strategy.scope(), a tf.Graph that a session runs",
            fix="use an optimizer of Keras: strategy.optimizer(keras.optimizers.Ftrl(0.1))",
        )
