"""Tests of a job: when it starts, and restarts on the hosts that are there."""

import itertools

import pytest

from xmc_tf.launch import running
from xmc_tf.launch.checks import HostCheck, HostChecks
from xmc_tf.launch.hosts import Host, Hosts
from xmc_tf.launch.plan import LaunchPlan
from xmc_tf.launch.running import Checks, Job, Outcome, Output

HOSTS = Hosts([Host("one", 2), Host("two", 1), Host("three", 1)])


class World:
    """Hosts that are down at some looks, and runs with given outcomes."""

    def __init__(self, monkeypatch, down, outcomes):
        self.down, self.outcomes, self.runs = itertools.chain(down, itertools.repeat(())), iter(outcomes), []
        world = self

        class Run:
            def __init__(self, plan, *others):
                world.runs.append(plan.hosts.as_flag())

            def run(self):
                return next(world.outcomes)

        def check_hosts(nodes, hosts, **inputs):
            down = next(world.down)
            failed = {name: HostCheck("no", "it is down", "start it") for name in down}
            return HostChecks({host: {"reached": failed.get(host.name, HostCheck("yes"))} for host in hosts})

        monkeypatch.setattr(running, "RunningPlan", Run)
        monkeypatch.setattr(running, "check_hosts", check_hosts)

    def job(self, min_np=None):
        plan = LaunchPlan(HOSTS, "gloo", ["x.py"], timeout_s=0)
        return Job(plan, None, Output(), Checks([], ".", strict=True), min_np=min_np)


LOST, FAILED, GOOD = Outcome(1, lost=True), Outcome(3), Outcome(0)


@pytest.mark.parametrize(
    ("down", "outcomes", "min_np", "status", "runs"),
    [
        # Without --min-np, all hosts must be there, and nothing is restarted.
        ([()], [GOOD], None, 0, ["one:2,two:1,three:1"]),
        ([("two",)], [], None, 1, []),
        ([()], [LOST], None, 1, ["one:2,two:1,three:1"]),
        # A host is down before the start, or is lost later.
        ([("two",)], [GOOD], 3, 0, ["one:2,three:1"]),
        ([(), ("three",)], [LOST, GOOD], 2, 0, ["one:2,two:1,three:1", "one:2,two:1"]),
        # Too few ranks are left.
        ([(), ("one",)], [LOST], 3, 1, ["one:2,two:1,three:1"]),
        # The program itself fails: all hosts are there.
        ([(), ()], [FAILED], 2, 3, ["one:2,two:1,three:1"]),
        # The first failure was that of a rank which noticed the lost host before the launcher did.
        ([(), ("three",)], [FAILED, GOOD], 2, 0, ["one:2,two:1,three:1", "one:2,two:1"]),
        # A host is lost for a moment; but a host on which ranks die again and again is not tried forever.
        ([(), ()], [LOST, GOOD], 2, 0, ["one:2,two:1,three:1"] * 2),
        ([()] * 9, [LOST] * 9, 2, 1, ["one:2,two:1,three:1"] * 4),
        # Ctrl-C ends the job.
        ([()], [Outcome(130, interrupted=True)], 2, 130, ["one:2,two:1,three:1"]),
    ],
)
def test_a_job_restarts_only_if_hosts_are_lost(monkeypatch, down, outcomes, min_np, status, runs):
    world = World(monkeypatch, down, outcomes)
    assert world.job(min_np).run() == status
    assert world.runs == runs


def test_a_host_that_returns_is_used_by_the_next_restart(monkeypatch, capsys):
    world = World(monkeypatch, [(), ("three",), ()], [LOST, LOST, GOOD])
    assert world.job(2).run() == 0
    assert world.runs == ["one:2,two:1,three:1", "one:2,two:1", "one:2,two:1,three:1"]
    shown = capsys.readouterr().err
    assert "restarting on 3 ranks (one:2,two:1)" in shown
    assert "three: not reached: it is down\n  fix: start it" in shown


def test_only_checking_starts_nothing(monkeypatch, capsys):
    world = World(monkeypatch, [("two",), ()], [])
    assert world.job().check_only() == 1
    assert "two: not reached" in capsys.readouterr().out
    assert world.job().check_only() == 0
    assert world.runs == []
