"""Marks in graphs for the stall watch: a counter before each collective, and one after it."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from xmc_tf.collective.engines.graph_order import in_plain_graph
from xmc_tf.ranks.stalls.marks import MARKS, Counts

_COUNTERS: dict[str, tuple[tf.Variable, tf.Variable]] = {}


def marked(
    name: str, inputs: Sequence[tf.Tensor], collective: Callable[[], Sequence[tf.Tensor]]
) -> Sequence[tf.Tensor]:
    """Return the results of ``collective()``, which waits for ``inputs``, with a mark before and one after it."""
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
        # In a new thread, nothing is traced: a function that makes variables during tracing, even outside of its graph,
        # is traced a second time.
        with ThreadPoolExecutor(1) as thread:
            _COUNTERS[name] = thread.submit(_new_counter).result(), thread.submit(_new_counter).result()
    return _COUNTERS[name]


def _new_counter() -> tf.Variable:
    with tf.device("/cpu:0"):
        return tf.Variable(0, dtype=tf.int64, trainable=False)


def _counts() -> Counts:
    # Ends are read first, so that a collective is never seen as ended before it began.
    ends = {name: int(ended.numpy()) for name, (_, ended) in list(_COUNTERS.items())}
    return {name: (int(_COUNTERS[name][0].numpy()), end) for name, end in ends.items()}
