"""The order of collectives in a graph of TensorFlow 1 (``tf.Graph``), in which nothing else orders operations.

Ranks must call collectives in the same order. Within a ``tf.function``, TensorFlow keeps the order of the program. In a
plain graph, each collective runs after the one that was added before it. Those of initial values have an order of their
own, because a session runs the initializers alone.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TypeVar

import tensorflow as tf

from xmc_tf.collective.blocks import set_in_block

T = TypeVar("T")
_CHAIN: ContextVar[str] = ContextVar("chain", default="steps")


def in_plain_graph() -> bool:
    """Return whether operations are added to a ``tf.Graph`` that a session will run, not to a function's graph."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


def of_graph(name: str, make: Callable[[], T]) -> T:
    """Return a named object of the graph that is being built; the first call makes it."""
    graph = tf.compat.v1.get_default_graph()
    if not hasattr(graph, f"_xmc_tf_{name}"):
        setattr(graph, f"_xmc_tf_{name}", make())
    found: T = getattr(graph, f"_xmc_tf_{name}")
    return found


def of_initial_values() -> AbstractContextManager[None]:
    """Order the collectives of the block among themselves only."""
    return set_in_block(_CHAIN, "initial values")


def in_order(collective: Callable[[], Sequence[tf.Tensor]]) -> Sequence[tf.Tensor]:
    """Return the results of ``collective()``, which in a plain graph runs after the one before it."""
    if not in_plain_graph():
        return collective()
    chain = _CHAIN.get()
    last: dict[str, tf.Operation] = of_graph("last_collectives", dict)
    with tf.control_dependencies([last[chain]] if chain in last else []):
        results = collective()
    last[chain] = results[0].op
    return results
