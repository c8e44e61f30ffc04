"""Tests of the time in collectives, of which concurrent ones count once."""

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
from xmc_tf.collective.meters.time_spent import add_to_total, length_of_union, seconds_in_collectives
from xmc_tf.ranks.stalls.marks import MARKS

NAP = 0.15


def nap(name, value):
    """Return the result of a collective that sleeps and returns its input."""

    def sleep(given_value):
        time.sleep(NAP)
        return given_value

    return marked(f"time/{name}", [value], lambda: [tf.numpy_function(sleep, [value], tf.float32, stateful=False)])[0]


def spent(call, *arguments):
    """Return the seconds that a call adds to the total, and the seconds that it takes."""
    before, begun = seconds_in_collectives(), time.monotonic()
    call(*arguments)
    return seconds_in_collectives() - before, time.monotonic() - begun


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_length_of_a_union(pairs):
    begun, ended = (np.array(side, np.float64) for side in ([b for b, _ in pairs], [b + n for b, n in pairs]))
    covered = {at for b, n in pairs for at in range(b, b + n)}
    assert float(length_of_union(tf.constant(begun), tf.constant(ended))) == len(covered)


@pytest.mark.parametrize("kept", [False, True])
def test_sequential_collectives_add_up(monkeypatch, kept):
    """With and without the marks of the stall watch; the second call starts with the times of the first."""
    monkeypatch.setattr(MARKS, "kept", kept)

    @tf.function
    def step(value):
        total = nap("same name", nap("same name", value) + 1)
        add_to_total()
        return total

    for _ in range(2):
        added, took = spent(step, tf.constant(1.0))
        assert 2 * NAP <= added <= took


def test_concurrent_collectives_count_once():
    """Reading the clock does not make the second one wait for the first."""
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
        add_to_total()
        return both

    added, took = spent(step, tf.constant(1.0))
    assert 3 * NAP <= added <= took
    assert added < 6 * NAP


def test_a_collective_that_a_step_skips_does_not_count():
    @tf.function
    def step(value, wanted):
        result = tf.cond(wanted, lambda: nap("sometimes", value), lambda: value)
        add_to_total()
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
        add_to_total()
        return slope

    assert step(tf.constant(2.0)).numpy() == 3.0
    assert spent(step, tf.constant(1.0))[0] >= 2 * NAP
    added, took = spent(nap, "eager", tf.constant(1.0))
    assert NAP <= added <= took
    assert spent(time.sleep, 0.01)[0] == 0


def test_graphs_have_no_clocks_if_disabled(monkeypatch):
    monkeypatch.setattr(time_spent, "ENABLED", False)
    monkeypatch.setattr(MARKS, "kept", False)

    @tf.function
    def step(value):
        result = nap("untimed", value)
        add_to_total()
        return result

    assert spent(step, tf.constant(1.0))[0] == 0
    assert {node.type for node in step.get_concrete_function(tf.constant(1.0)).graph.get_operations()} <= {
        "Placeholder", "PyFunc", "PyFuncStateless", "Identity", "NoOp"
    }  # fmt: skip


def test_the_clock_is_not_read_with_deterministic_operations():
    """TensorFlow then raises an error for its clock."""
    program = """
import tensorflow as tf
tf.config.experimental.enable_op_determinism()
from xmc_tf.collective.meters import time_spent
from xmc_tf.collective.meters.graph_marks import marked
@tf.function
def step(value):
    (result,) = marked("a", [value], lambda: [value + 1])
    time_spent.add_to_total()
    return result
print(float(step(tf.constant(1.0))), time_spent.seconds_in_collectives())
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=400)
    assert run.stdout == "2.0 0.0\n", run.stderr[-2000:]
