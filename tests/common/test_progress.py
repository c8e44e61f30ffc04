"""Tests of progress and its estimates."""

import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import Clock
from xmc_tf.common import activity, progress
from xmc_tf.common.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_a_slow_start_does_not_spoil_the_estimate(clock, capsys):
    """One second of work is left; the first unit, with compiling, took 17 s."""
    with Progress("training", 5, "steps", every_s=0) as shown:
        for seconds in (17, 1, 1, 1, 1):
            clock.now += seconds
            shown.add()
    said = lines(capsys)
    assert said[0] == "training: 20%, 1 of 5 steps"  # no estimate yet
    assert said[3].endswith("1/s, 1.0 s left")
    assert said[4] == "training: 100%, 5 of 5 steps"
    assert not any("min" in line for line in said)


def test_an_estimate_follows_the_rate_of_the_last_half_minute(clock):
    with Progress("work", 1000) as shown:
        for _ in range(100):
            clock.now += 1
            shown.add(5)
        assert shown.left_s == pytest.approx(100)
        for _ in range(40):
            clock.now += 1
            shown.add(10)
        assert shown.left_s == pytest.approx(10)


def test_a_notebook_shows_a_bar_without_escape_sequences(clock, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    with Progress("training", 20, "steps", quiet_s=0) as shown:
        for _ in range(2):
            clock.now += 1
            shown.add(10)
    said = capsys.readouterr().err
    assert "\x1b" not in said
    first, second = (line for line in said.split("\r") if line.startswith("training ["))
    assert first == f"training [{'#' * 15}{' ' * 15}]  50% 10 of 20 steps"
    assert second.startswith(f"training [{'#' * 30}] 100% 20 of 20 steps")
    assert said.endswith("training: 20 steps in 2.0 s\n")
    with Progress("training", 1, "steps", quiet_s=0) as shown:
        clock.now += 2
        shown.add(1)
    assert capsys.readouterr().err.endswith("training: 1 step in 2.0 s\n")


@given(
    st.integers(0, 60), st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 50)), max_size=30)
)  # fmt: skip
def test_no_estimate_is_negative_or_shown_at_the_end(total, steps):
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "time", clock)
        shown = Progress("work", total, quiet_s=float("inf"))
        for seconds, count in steps:
            clock.now += seconds
            shown.add(count)
            left = shown.left_s
            assert left is None or left > 0
            if shown.done >= total:
                assert left is None


@pytest.fixture
def silence(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(activity, "time", clock)
    activity.wrote()

    def passes(seconds):
        for _ in range(seconds):
            clock.now += 1
            activity.say_if_due(clock.now)

    return passes


def test_silent_work_is_named_after_five_seconds_and_then_ever_more_rarely(silence, caplog):
    caplog.set_level(logging.INFO, "xmc_tf")
    with activity.doing("clustering the labels"):
        silence(4)
        assert not caplog.messages
        silence(36)
    assert caplog.messages == [f"clustering the labels: {seconds} s so far" for seconds in (5, 15, 35)]
    silence(100)
    assert len(caplog.messages) == 3


def test_the_innermost_work_is_named_and_output_postpones_the_line(silence, caplog):
    caplog.set_level(logging.INFO, "xmc_tf")
    with activity.doing("training"), activity.doing("compiling"):
        silence(4)
        activity.wrote()
        silence(4)
        assert not caplog.messages
        silence(1)
    assert caplog.messages == ["compiling: 9 s so far"]


def test_a_progress_whose_first_unit_takes_long_is_shown(silence, capsys):
    with Progress("rankers", 7, "labels"):
        silence(5)
        assert capsys.readouterr().err == "rankers: 0%, 0 of 7 labels\n"
