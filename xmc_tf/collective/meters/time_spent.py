"""The time that this process spends in collectives, measured in the graph before and after each of them.

A collective's time runs from when its inputs are ready to when its results are, so it includes waiting for slower
ranks. The times are added up at the end of a step; concurrent collectives count once. On a GPU, an input counts as
ready when the kernel that makes it has been launched.
"""

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tensorflow as tf

from xmc_tf.collective.meters.local_variable import local_variable

# If False, traced graphs have no clocks; a benchmark measures their cost.
ENABLED = True

_lock = threading.Lock()
_spent_outside_of_graphs = 0.0


class Clock:
    """The times at which a collective of a graph last began and ended.

    TensorFlow runs operations that use the same variable, or read the clock, in the program's order, so a second
    collective would wait for the end of the first. Therefore each clock has its own variables, and the clock is read
    inside small functions, for which TensorFlow orders by the variable alone.
    """

    def __init__(self) -> None:
        self.begun, self.ended = local_variable(tf.float64), local_variable(tf.float64)
        self.begin, self.end = _reading(self.begun), _reading(self.ended)


class _Clocks:
    """The clocks of all graphs, by the collective's name and its index among those of that name in its graph."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, int], Clock] = {}
        self.possible: bool | None = None
        self.total: tf.Variable | None = None  # seconds up to the last step
        self.until: tf.Variable | None = None  # when the last collective of that step ended
        self._numbers: weakref.WeakKeyDictionary[tf.Graph, Counter[str]] = weakref.WeakKeyDictionary()

    def new(self, name: str) -> Clock | None:
        """Return the clock for a collective that is being traced."""
        if self.possible is None:
            self.possible = _clock_is_allowed()
        if not (ENABLED and self.possible):
            return None
        numbers = self._numbers.setdefault(_outermost(tf.compat.v1.get_default_graph()), Counter())
        key, numbers[name] = (name, numbers[name]), numbers[name] + 1
        if self.total is None:
            self.total, self.until = local_variable(tf.float64), local_variable(tf.float64)
        if key not in self.of:
            self.of[key] = Clock()
        return self.of[key]


_CLOCKS = _Clocks()


def clock_for(name: str) -> Clock | None:
    """Return the clock for a collective that is being traced, or None if time is not measured.

    Args:
        name: the collective's name.
    """
    return _CLOCKS.new(name)


@contextmanager
def timed() -> Iterator[None]:
    """Count the time of the block, a collective outside of graphs."""
    global _spent_outside_of_graphs
    begun = time.monotonic()
    try:
        yield
    finally:
        with _lock:
            _spent_outside_of_graphs += time.monotonic() - begun


def add_to_total() -> None:
    """Add the time since the last call to the total; called in a step's graph after its collectives."""
    if _CLOCKS.total is None or _CLOCKS.until is None or not ENABLED:
        return
    clocks = list(_CLOCKS.of.values())
    with tf.device("/cpu:0"):
        # A collective that was not in this step ended before ``until``, so its length is 0.
        begun = tf.maximum(tf.stack([clock.begun.read_value() for clock in clocks]), _CLOCKS.until)
        ended = tf.maximum(tf.stack([clock.ended.read_value() for clock in clocks]), begun)
        _CLOCKS.total.assign_add(length_of_union(begun, ended), read_value=False)
        _CLOCKS.until.assign(tf.reduce_max(ended), read_value=False)


def length_of_union(begun: tf.Tensor, ended: tf.Tensor) -> tf.Tensor:
    """Return the length of the union of intervals.

    Example:
        >>> float(length_of_union(tf.constant([1.0, 2.0, 7.0]), tf.constant([3.0, 5.0, 8.0])))
        5.0
    """
    points = tf.concat([begun, ended], axis=0)
    order = tf.argsort(points)
    points = tf.gather(points, order)
    steps = tf.concat([tf.ones_like(begun, tf.int32), -tf.ones_like(ended, tf.int32)], axis=0)
    under_way = tf.cumsum(tf.gather(steps, order))[:-1]
    return tf.reduce_sum(tf.where(under_way > 0, points[1:] - points[:-1], 0))


def seconds_in_collectives() -> float:
    """Return the seconds that this process has spent in collectives with other ranks since its start.

    Example:
        >>> before = seconds_in_collectives()
        >>> step(batch)
        >>> seconds_in_collectives() - before
        0.0127
    """
    inside = 0.0 if _CLOCKS.total is None else float(_CLOCKS.total.numpy())
    return inside + _spent_outside_of_graphs


def _reading(variable: tf.Variable) -> Callable[[], tf.Tensor]:
    def read() -> tf.Tensor:
        now = tf.timestamp()
        variable.assign(now, read_value=False)
        return now

    return tf.function(read, autograph=False)


def _clock_is_allowed() -> bool:
    """Return whether TensorFlow allows reading the clock, which deterministic mode forbids."""
    try:
        with tf.init_scope(), tf.device("/cpu:0"):
            tf.timestamp()
    except tf.errors.FailedPreconditionError:
        return False
    return True


def _outermost(graph: tf.Graph) -> tf.Graph:
    """Return the outermost graph that is being traced, such as a step's for that of a condition in it."""
    while getattr(graph, "outer_graph", None) is not None and graph.outer_graph.building_function:
        graph = graph.outer_graph
    return graph
