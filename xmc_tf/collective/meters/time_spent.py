"""How long this process has been in collectives: by the clock, read inside the graph before and after each of them.

A collective's time is from when its inputs are there to when its results are, so that waiting for slower ranks is in
it. At the end of a step the times are added up; what was under way at the same time counts once. On a GPU an input
counts as there when the work that makes it has been handed over.
"""

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tensorflow as tf

from xmc_tf.collective.meters.own_number import own_number

# Off, graphs that are traced hold no clocks; a benchmark asks what these cost.
KEPT = True

_lock = threading.Lock()
_spent_outside_of_graphs = 0.0


class Clock:
    """When one collective of a graph last began and ended.

    Each has variables of its own: TensorFlow lets what uses one variable, or reads the clock, happen in the program's
    order, and so would keep the second of two collectives waiting for the end of the first. That is also why the clock
    is read inside of small functions, of which TensorFlow sees the variable alone.
    """

    def __init__(self) -> None:
        self.begun, self.ended = own_number(tf.float64), own_number(tf.float64)
        self.begin, self.end = _reading(self.begun), _reading(self.ended)


class _Clocks:
    """The clocks of all graphs, by the collective's name and how many of that name there are before it in its graph."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, int], Clock] = {}
        self.possible: bool | None = None
        self.total: tf.Variable | None = None  # seconds, up to the last step that was added up
        self.until: tf.Variable | None = None  # when the last collective in it ended
        self._met: weakref.WeakKeyDictionary[tf.Graph, Counter[str]] = weakref.WeakKeyDictionary()

    def new(self, name: str) -> Clock | None:
        """Return the one for the collective that is being traced."""
        if self.possible is None:
            self.possible = _can_tell_the_time()
        if not (KEPT and self.possible):
            return None
        met = self._met.setdefault(_outermost(tf.compat.v1.get_default_graph()), Counter())
        key, met[name] = (name, met[name]), met[name] + 1
        if self.total is None:
            self.total, self.until = own_number(tf.float64), own_number(tf.float64)
        if key not in self.of:
            self.of[key] = Clock()
        return self.of[key]


_CLOCKS = _Clocks()


def clock_for(name: str) -> Clock | None:
    """Return the clock for a collective that is being traced; None where the time is not taken.

    Args:
        name: of the collective.
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


def add_up() -> None:
    """Add to the total what was spent since the last time; stands in a step's graph behind its collectives."""
    if _CLOCKS.total is None or _CLOCKS.until is None or not KEPT:
        return
    clocks = list(_CLOCKS.of.values())
    with tf.device("/cpu:0"):
        # A collective that was not in this step ended before, and so has no length from there on.
        begun = tf.maximum(tf.stack([clock.begun.read_value() for clock in clocks]), _CLOCKS.until)
        ended = tf.maximum(tf.stack([clock.ended.read_value() for clock in clocks]), begun)
        _CLOCKS.total.assign_add(length_of_union(begun, ended), read_value=False)
        _CLOCKS.until.assign(tf.reduce_max(ended), read_value=False)


def length_of_union(begun: tf.Tensor, ended: tf.Tensor) -> tf.Tensor:
    """How much of a line some intervals cover.

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
    """Seconds that this process has spent in collectives with other ranks since its start.

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


def _can_tell_the_time() -> bool:
    """Not where TensorFlow has been told to do everything the same way every time."""
    try:
        with tf.init_scope(), tf.device("/cpu:0"):
            tf.timestamp()
    except tf.errors.FailedPreconditionError:
        return False
    return True


def _outermost(graph: tf.Graph) -> tf.Graph:
    """Return the graph that a function's graph is traced for, such as a step's for that of a condition in it."""
    while getattr(graph, "outer_graph", None) is not None and graph.outer_graph.building_function:
        graph = graph.outer_graph
    return graph
