"""The time in collectives: each from when it can begin to when it has ended, those side by side once."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from xmc_tf.collective.meters import time_spent
from xmc_tf.collective.meters.graph_marks import marked
from xmc_tf.collective.meters.time_spent import add_up, length_of_union, seconds_in_collectives
from xmc_tf.ranks.stalls.marks import MARKS

NAP = 0.15


def nap(name, value):
    """Return a collective that takes its time, and gives what it was given."""

    def sleep(given_value):
        time.sleep(NAP)
        return given_value

    return marked(f"time/{name}", [value], lambda: [tf.numpy_function(sleep, [value], tf.float32, stateful=False)])[0]


def spent(call, *arguments):
    """Seconds that the call has added, and those that it took."""
    before, begun = seconds_in_collectives(), time.monotonic()
    call(*arguments)
    return seconds_in_collectives() - before, time.monotonic() - begun


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_length_of_a_union(pairs):
    begun, ended = (np.array(side, np.float64) for side in ([b for b, _ in pairs], [b + n for b, n in pairs]))
    covered = {at for b, n in pairs for at in range(b, b + n)}
    assert float(length_of_union(tf.constant(begun), tf.constant(ended))) == len(covered)


@pytest.mark.parametrize("kept", [False, True])
def test_one_after_another_adds_up(monkeypatch, kept):
    """With and without the marks of those who look out for stalls; the second call has what a first one has left."""
    monkeypatch.setattr(MARKS, "kept", kept)

    @tf.function
    def step(value):
        total = nap("same name", nap("same name", value) + 1)
        add_up()
        return total

    for _ in range(2):
        added, took = spent(step, tf.constant(1.0))
        assert 2 * NAP <= added <= took


def test_side_by_side_counts_once():
    """The second does not wait for the first, for all that both read the clock."""
    both_there = threading.Barrier(2, timeout=20)

    def sleep(value):
        both_there.wait()
        time.sleep(3 * NAP)
        return value

    def collective(name, value):
        return marked(name, [value], lambda: [tf.numpy_function(sleep, [value], tf.float32, stateful=False)])[0]

    @tf.function
    def step(value):
        both = collective("time/one", value) + collective("time/other", value)
        add_up()
        return both

    added, took = spent(step, tf.constant(1.0))
    assert 3 * NAP <= added <= took
    assert added < 6 * NAP


def test_what_was_left_out_of_a_step_counts_for_nothing():
    @tf.function
    def step(value, wanted):
        result = tf.cond(wanted, lambda: nap("sometimes", value), lambda: value)
        add_up()
        return result

    assert spent(step, tf.constant(1.0), tf.constant(True))[0] >= NAP
    assert spent(step, tf.constant(1.0), tf.constant(False))[0] == 0
    assert spent(step, tf.constant(1.0), tf.constant(True))[0] >= NAP


def test_gradients_outside_of_graphs_and_none():
    @tf.custom_gradient
    def there_and_back(value):
        return nap("there", value), lambda upstream: nap("back", upstream)

    @tf.function
    def step(value):
        with tf.GradientTape() as tape:
            tape.watch(value)
            loss = 3.0 * there_and_back(value)
        slope = tape.gradient(loss, value)
        add_up()
        return slope

    assert step(tf.constant(2.0)).numpy() == 3.0
    assert spent(step, tf.constant(1.0))[0] >= 2 * NAP
    added, took = spent(nap, "eager", tf.constant(1.0))
    assert NAP <= added <= took
    assert spent(time.sleep, 0.01)[0] == 0


def test_without_clocks_a_graph_holds_none(monkeypatch):
    monkeypatch.setattr(time_spent, "KEPT", False)
    monkeypatch.setattr(MARKS, "kept", False)

    @tf.function
    def step(value):
        result = nap("untimed", value)
        add_up()
        return result

    assert spent(step, tf.constant(1.0))[0] == 0
    assert {node.type for node in step.get_concrete_function(tf.constant(1.0)).graph.get_operations()} <= {
        "Placeholder", "PyFunc", "PyFuncStateless", "Identity", "NoOp"
    }  # fmt: skip


def test_where_tensorflow_must_not_tell_the_time():
    """With deterministic operations its clock is an error: then none is read."""
    program = """
import tensorflow as tf
tf.config.experimental.enable_op_determinism()
from xmc_tf.collective.meters import time_spent
from xmc_tf.collective.meters.graph_marks import marked
@tf.function
def step(value):
    (result,) = marked("a", [value], lambda: [value + 1])
    time_spent.add_up()
    return result
print(float(step(tf.constant(1.0))), time_spent.seconds_in_collectives())
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=400)
    assert run.stdout == "2.0 0.0\n", run.stderr[-2000:]
