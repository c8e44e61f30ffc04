"""Tests of the stall watch: the marks of waits, the report, and the settings."""

import socket
import threading
import time

import pytest
import tensorflow as tf

from tests.clock import Clock
from tests.collective.threads import on_ranks, results_of
from tests.distributed.launch import wait_for
from tests.refusals import refused
from xmc_tf.collective.engines.graph_order import marked
from xmc_tf.ranks.stalls import marks as marks_module
from xmc_tf.ranks.stalls import watch
from xmc_tf.ranks.stalls.marks import MARKS, Marks
from xmc_tf.ranks.stalls.watch import _GLOO_TIMEOUT, State, current_state, describe, outlast_stalls, timeout_of


@pytest.fixture
def clock(monkeypatch):
    moved = Clock()
    monkeypatch.setattr(marks_module, "time", moved)
    return moved


def test_a_wait_is_as_long_as_its_block(clock):
    marks = Marks()
    assert marks.waits() == {}
    with marks.waiting_in("outer"):
        clock.sleep(2)
        with marks.waiting_in("inner"):
            assert list(marks.waits().items()) == [("outer", 2), ("inner", 0)]
        with pytest.raises(ValueError, match="broken"), marks.waiting_in("broken"):
            raise ValueError("broken")
        assert list(marks.waits()) == ["outer"]
    assert marks.waits() == {}

    @marks.as_wait("a call")
    def waits_within(text):
        return [text, *marks.waits()]

    assert waits_within("in") == ["in", "a call"]
    assert marks.waits() == {}


def test_a_wait_ends_when_its_counts_change(clock):
    marks, counts = Marks(), {"a": (0, 0)}
    marks.add_source(lambda: counts)
    assert marks.waits() == {}
    counts["a"] = (1, 0)
    assert marks.waits() == {"a": 0}
    clock.sleep(3)
    assert marks.waits() == {"a": 3}
    counts["a"] = (2, 1)  # the first has ended, and another has begun
    assert marks.waits() == {"a": 0}
    counts["a"] = (2, 2)
    assert marks.waits() == {}


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.setattr(MARKS, "kept", True)


def test_marks_in_a_graph_show_a_wait_and_keep_its_results(kept):
    """The collective blocks until another thread has seen the wait."""
    let_go, waits = threading.Event(), {}

    def wait(value):
        let_go.wait(120)
        return value + 1

    @tf.function
    def call(value):
        def collective():
            return [tf.py_function(wait, [value], tf.float32), tf.constant(7)]

        return marked("test/graph", [value], collective)

    def look():
        end = time.monotonic() + 100
        while not waits.get("test/graph") and time.monotonic() < end:
            time.sleep(0.01)
            waits.update(MARKS.waits())
        let_go.set()

    thread = threading.Thread(target=look)
    thread.start()
    results = call(tf.constant(2.0))
    thread.join()
    assert [one.numpy() for one in results] == [3.0, 7]
    assert waits["test/graph"] > 0
    assert "test/graph" not in MARKS.waits()


def test_gradients_pass_through_marks(kept):
    value = tf.Variable(3.0)

    @tf.function
    def slope():
        with tf.GradientTape() as tape:
            (loss,) = marked("test/gradient", [value.read_value()], lambda: [tf.square(value)])
        return tape.gradient(loss, value)

    assert slope().numpy() == 6.0
    assert "test/gradient" not in MARKS.waits()


def test_the_state_has_the_current_line():
    state = current_state(3, "here")
    assert state.place.startswith("test_stalls.py:")
    assert " in test_the_state_has_the_current_line: state = current_state(" in state.place


def test_a_stall_is_reported():
    states = [
        State(0, 10, "a", {"xmc_tf/norm": 1.2}, "train.py:9 in main: step()"),
        State(1, 11, "a", {"t/ids": 31.0, "t/rows": 2.0}, "train.py:7 in main: step()"),
        State(2, 12, "b", silence="has ended"),
        State(3, 13, "b", {"t/ids": 29.0}),
    ]
    assert describe(states, 30) == [
        "stall: rank 1 has waited 30 s for rank 0, 2, which are elsewhere",
        "  rank 1 (pid 11 on a) waits in t/ids for 31 s, t/rows for 2 s; train.py:7 in main: step()",
        "  rank 0 (pid 10 on a) waits in xmc_tf/norm for 1 s; train.py:9 in main: step()",
        "  rank 2 (pid 12 on b) has ended",
        "  rank 3 (pid 13 on b) waits in t/ids for 29 s",
    ]
    together = [State(rank, rank, "a", {"t/ids": 5.0}) for rank in range(40)]
    lines = describe(together, 5)
    assert lines[0] == (
        "stall: rank 0 has waited 5 s for an answer, and all ranks are in the same call: check the network between them"
    )
    assert lines[-1] == "  and 24 more ranks"
    assert len(describe([State(0, 1, "a", {"t/ids": 5.0}), *(State(r, r, "a") for r in range(1, 40))], 5)[0]) < 120


def test_the_environment_overrides_the_timeout():
    assert timeout_of({}) is None
    assert timeout_of({}, 30) == 30
    assert timeout_of({"XMC_TF_STALL_TIMEOUT": ""}, 30) == 30
    assert timeout_of({"XMC_TF_STALL_TIMEOUT": "600"}, 30) == 600
    assert timeout_of({"XMC_TF_STALL_TIMEOUT": "0"}, 30) == 0
    for text in ("soon", "-1", "nan", "inf"):
        refused("XMC_TF_STALL_TIMEOUT", timeout_of, {"XMC_TF_STALL_TIMEOUT": text})
    refused("stall_timeout", timeout_of, {}, 0)


@pytest.mark.parametrize(
    ("environment", "given", "limit"),
    [({}, None, None), ({}, 600.5, "630"), ({"XMC_TF_STALL_TIMEOUT": "60"}, 5, "90"), ({_GLOO_TIMEOUT: "3"}, 60, "3")],
)
def test_gloo_waits_until_the_watch_has_reported(environment, given, limit):
    outlast_stalls(environment, given)
    assert environment.get(_GLOO_TIMEOUT) == limit


def test_rank_0_knows_the_states_of_all_and_a_watch_that_has_stopped():
    def on_rank(world):
        world.host = "one"
        one = watch.StallWatch(world, timeout=None, warn_after=1)
        one.start()
        with MARKS.waiting_in(f"the call of {world.rank}"):
            wait_for(lambda: len(one.states()[-1].waits) == 3, what="all waits in the state of another thread's rank")
            world.barrier()
        if world.rank == 2:
            one.stop()
        if world.rank == 0:
            wait_for(lambda: "has ended" in one.states()[2].silence, what="the end of rank 2")
            assert [state.silence for state in one.states()[:2]] == ["", ""]
        world.barrier()
        one.stop()
        return one.silent

    assert results_of(on_ranks(3, on_rank)) == [[]] * 3


def test_a_rank_that_is_told_to_end_still_knows_who_was_silent(monkeypatch):
    """Its main thread may fail a moment later, when the connection to rank 0 closes, and names the silent rank."""
    ended = threading.Event()
    monkeypatch.setattr(watch, "_exit", ended.set)
    monkeypatch.setattr(watch, "_LINGER_S", 0)

    def on_rank(world):
        one = watch.StallWatch(world, timeout=None, warn_after=1)
        if world.rank == 0:
            wait_for(lambda: 1 in one._channels, what="the connection of rank 1")
            one._send_all(silent=["rank 2 is stopped"])
            one._send_all(end=True)
        else:
            one.start()
        assert ended.wait(60)
        world.barrier()
        if world.rank == 0:
            one._listener.close()
        else:
            one.stop()
        return one.silent

    assert results_of(on_ranks(2, on_rank)) == [[], ["rank 2 is stopped"]]


@pytest.mark.parametrize("interface", ["", "lo"])
def test_other_hosts_reach_the_watch_at_an_address_of_this_host(interface, monkeypatch):
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", interface)
    assert watch._own_address([("here", "here")] * 2) == "127.0.0.1"
    address = watch._own_address([("here", "here"), ("there", "there.invalid")])
    assert not interface or address == "127.0.0.1"
    with socket.create_server((address, 0)):
        pass
