"""Runs the collectives of a ``tf.Graph`` in a fixed order, and counts their starts and ends for the stall watch."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

import tensorflow as tf

from xmc_tf.collective.blocks import set_in_block
from xmc_tf.ranks.stalls.marks import MARKS, Counts

T = TypeVar("T")
_CHAIN: ContextVar[str] = ContextVar("chain", default="steps")


def in_plain_graph() -> bool:
    """Return whether a ``tf.Graph`` that a session will run is being built, rather than the graph of a function."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


def of_graph(name: str, make: Callable[[], T]) -> T:
    """Return an object that is stored in the current graph under ``name``. The first call creates it."""
    graph = tf.compat.v1.get_default_graph()
    if not hasattr(graph, f"_xmc_tf_{name}"):
        setattr(graph, f"_xmc_tf_{name}", make())
    found: T = getattr(graph, f"_xmc_tf_{name}")
    return found


def of_initial_values() -> AbstractContextManager[None]:
    """In the block, order collectives separately from those of the training steps."""
    return set_in_block(_CHAIN, "initial values")


def in_order(collective: Callable[[], Sequence[tf.Tensor]]) -> Sequence[tf.Tensor]:
    """Return the results of ``collective()``. In a plain graph, it runs after the previous collective."""
    if not in_plain_graph():
        return collective()
    chain = _CHAIN.get()
    last: dict[str, tf.Operation] = of_graph("last_collectives", dict)
    with tf.control_dependencies([last[chain]] if chain in last else []):
        results = collective()
    last[chain] = results[0].op
    return results


_COUNTERS: dict[str, tuple[tf.Variable, tf.Variable]] = {}


def marked(
    name: str, inputs: Sequence[tf.Tensor], collective: Callable[[], Sequence[tf.Tensor]]
) -> Sequence[tf.Tensor]:
    """Run ``collective()`` as soon as ``inputs`` are ready, record its start and end, and return its results."""
    if tf.executing_eagerly():
        with MARKS.waiting_in(name):
            return collective()
    if not MARKS.kept or in_plain_graph():  # in a plain graph, the counters would be variables of the user
        return collective()
    begun, ended = _counters(name)
    with tf.control_dependencies(inputs):
        begins = _counted(begun)
    with tf.control_dependencies([begins]):
        results = collective()
    with tf.control_dependencies(results):
        ends = _counted(ended)
    # In the gradient of a function, nothing else would run the second mark.
    with tf.control_dependencies([ends]):
        return [tf.identity(result) for result in results]


def _counted(counter: tf.Variable) -> tf.Operation:
    with tf.device("/cpu:0"):
        return counter.assign_add(1, read_value=False)


def _counters(name: str) -> tuple[tf.Variable, tf.Variable]:
    if name not in _COUNTERS:
        if not _COUNTERS:
            MARKS.add_source(_counts)
        _COUNTERS[name] = _new_variable(0, tf.int64), _new_variable(0, tf.int64)
    return _COUNTERS[name]


def _new_variable(value: int, dtype: tf.DType) -> tf.Variable:
    def make() -> tf.Variable:
        with tf.device("/cpu:0"):
            return tf.Variable(value, dtype=dtype, trainable=False)

    # In a new thread, nothing is traced: a function that makes variables during tracing, even outside of its graph, is
    # traced a second time.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


@cache
def _variable_of_one() -> tf.Variable:
    return _new_variable(1, tf.int32)


def not_constant(tensor: tf.Tensor) -> tf.Tensor:
    """Return the tensor in a form that TensorFlow cannot compute before the graph runs, even if the tensor is constant,
    as the size of a batch of static shape. The tensor is not copied.
    """
    if tf.executing_eagerly():
        return tensor
    # In a plain graph, a variable would be one of the user.
    one = tf.cast(tf.timestamp() > 0.0, tf.int32) if in_plain_graph() else _variable_of_one().read_value()
    same = tf.squeeze(tf.reshape(tensor, tf.concat([one[None], tf.shape(tensor)], axis=0)), axis=0)
    same.set_shape(tensor.shape)
    return same


def _counts() -> Counts:
    # Ends are read first, so that a collective is never seen as ended before it began.
    ends = {name: int(ended.numpy()) for name, (_, ended) in list(_COUNTERS.items())}
    return {name: (int(_COUNTERS[name][0].numpy()), end) for name, end in ends.items()}
