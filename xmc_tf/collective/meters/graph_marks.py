"""Marks in graphs: two counters and two clock readings around each collective, which take a few microseconds."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from xmc_tf.collective.meters.local_variable import local_variable
from xmc_tf.collective.meters.time_spent import clock_for, timed
from xmc_tf.ranks.stalls.marks import MARKS, Counts

_COUNTERS: dict[str, tuple[tf.Variable, tf.Variable]] = {}


def marked(
    name: str, inputs: Sequence[tf.Tensor], collective: Callable[[], Sequence[tf.Tensor]]
) -> Sequence[tf.Tensor]:
    """Return the results of ``collective()``, with a mark before and one after it.

    Args:
        name: the collective's name.
        inputs: the tensors that it waits for; it begins when they are computed.
        collective: adds the collective to the graph, or runs it outside of graphs.
    """
    if tf.executing_eagerly():
        with MARKS.waiting_in(name), timed():
            return collective()
    counters, clock = _counters(name) if MARKS.kept else None, clock_for(name)
    if counters is None and clock is None:
        return collective()

    def mark(which: int) -> list[tf.Tensor | tf.Operation]:
        with tf.device("/cpu:0"):
            counted = [] if counters is None else [counters[which].assign_add(1, read_value=False)]
            return counted if clock is None else [*counted, (clock.begin, clock.end)[which]()]

    with tf.control_dependencies(inputs):
        begins = mark(0)
    with tf.control_dependencies(begins):
        results = collective()
    with tf.control_dependencies(results):
        ends = mark(1)
    # In the gradient of a function, nothing else would run the second mark.
    with tf.control_dependencies(ends):
        return [tf.identity(result) for result in results]


def _counters(name: str) -> tuple[tf.Variable, tf.Variable]:
    if name not in _COUNTERS:
        if not _COUNTERS:
            MARKS.add_source(_counts)
        _COUNTERS[name] = local_variable(tf.int64), local_variable(tf.int64)
    return _COUNTERS[name]


def _counts() -> Counts:
    # Ends are read first, so that a collective is never seen as ended before it began.
    ends = {name: int(ended.numpy()) for name, (_, ended) in list(_COUNTERS.items())}
    return {name: (int(_COUNTERS[name][0].numpy()), end) for name, end in ends.items()}
