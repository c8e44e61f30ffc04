"""A command says what it is doing when nothing has been written for a while."""

import logging

import pytest

from tests.clock import Clock
from xmc_tf.common import activity
from xmc_tf.common.progress import Progress


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
