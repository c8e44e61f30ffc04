"""Tests of the launcher: cores, messages, the first failure, and invalid calls."""

import itertools
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import pip_install
from xmc_tf.launch import __main__ as launch
from xmc_tf.launch.engines import Mpi, check_installed, default_controller
from xmc_tf.launch.hosts import Host, Hosts
from xmc_tf.launch.node import divide
from xmc_tf.launch.nodes import NodeError
from xmc_tf.launch.rank_proxy import LAUNCHER
from xmc_tf.launch.running import RankState, first_failure
from xmc_tf.ranks.channels import Channel


@given(st.sets(st.integers(0, 200), min_size=1, max_size=40), st.integers(1, 50))
def test_cores_are_divided_among_the_ranks(cores, ranks):
    shares = divide(sorted(cores), ranks)
    assert len(shares) == ranks
    if ranks > len(cores):
        assert shares == [sorted(cores)] * ranks
    else:
        assert list(itertools.chain(*shares)) == sorted(cores)  # every core once, adjacent ones together
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def state(rank, status, last_line_at=0.0, ended_at=10.0, stopped=False):
    return RankState(rank, "host", 100 + rank, last_line_at, status=status, ended_at=ended_at, stopped=stopped)


def test_the_first_failure_is_the_cause_and_not_the_first_end():
    assert first_failure([state(0, 0), state(1, None, ended_at=None), state(2, -15, stopped=True)]) is None
    # Rank 0 ended before rank 1, but rank 1 reported its error before.
    slow = [state(0, 1, last_line_at=5.2, ended_at=5.3), state(1, 1, last_line_at=5.0, ended_at=7.0)]
    assert first_failure(slow).rank == 1
    # The error of another rank never ends a process by SIGKILL or SIGSEGV, but may by SIGABRT.
    assert first_failure([state(0, 1, last_line_at=1.0), state(1, -9, last_line_at=4.0)]).rank == 1
    assert first_failure([state(0, 1, last_line_at=1.0), state(1, -6, last_line_at=4.0)]).rank == 0


def test_the_end_of_a_rank_is_described():
    killed = state(3, -9)
    killed.errors.append("a warning")
    killed.output.extend(f"step {number}" for number in range(9))
    assert killed.exit_code == 137
    assert killed.describe() == (
        "rank 3 (pid 103 on host) was ended by signal 9 (SIGKILL); if nobody killed it, its host was out of memory. "
        "Its last lines:\n    step 4\n    step 5\n    step 6\n    step 7\n    step 8\n    a warning"
    )
    assert "within four times --timeout" in state(1, -14).describe()
    lost = state(2, None)
    assert lost.failed
    assert lost.exit_code == 1
    assert "rank 2 (pid 102 on host) was lost" in lost.describe()
    assert "ended with exit status 3. It had no output" in state(1, 3).describe()
    assert "ended with exit status 3. The others were stopped. It had no" in state(1, 3).describe(siblings=True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--np", "2"], "nothing to run"),
        (["--np", "0", "-m", "x"], "--np"),
        (["--np", "2", "nowhere.py"], "no such script or program: nowhere.py"),
        (["--np", "2", "xmc_tf.check"], "use -m xmc_tf.check"),
        (["--np", "2", "--threads", "0", "-m", "x"], "--threads"),
        (["--np", "2", "--stall-timeout", "0", "-m", "x"], "--stall-timeout"),
    ],
)
def test_an_invalid_call_is_refused_before_anything_starts(arguments, says, capsys):
    with pytest.raises((InputError, SystemExit)) as error:  # the parser ends the process
        launch.main(arguments)
    assert says in str(error.value) + capsys.readouterr().err


def test_a_launcher_among_ranks_is_refused(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    refused("started as one of several ranks", launch.main, ["--np", "2", "-m", "x"])


@pytest.mark.parametrize(
    ("controller", "missing", "fix"),
    [
        ("gloo", "Horovod", f"{pip_install('mpi')} and use --controller mpi"),
        ("mpi", "mpiexec with mpi4py", pip_install("mpi")),
    ],
)
def test_what_connects_the_ranks_is_named_if_it_is_missing(controller, missing, fix, monkeypatch):
    monkeypatch.setattr("xmc_tf.launch.engines.find_spec", lambda name: None)
    error = refused(f"{missing} is not installed", launch.main, ["--np", "2", "--controller", controller, "-m", "x"])
    assert fix in str(error)


def test_mpiexec_needs_no_horovod(monkeypatch):
    monkeypatch.setattr("xmc_tf.launch.engines.find_spec", lambda name: None if name == "horovod" else True)
    check_installed("mpi")
    assert default_controller() == "mpi"
    monkeypatch.setattr("xmc_tf.launch.engines.find_spec", lambda name: True)
    assert default_controller() == "gloo"
    monkeypatch.setattr("xmc_tf.launch.engines.find_spec", lambda name: None)
    assert default_controller() == "gloo"  # whose error names both ways


def test_a_lost_host_does_not_stop_the_proxies_of_others(monkeypatch):
    monkeypatch.setattr("xmc_tf.launch.engines.mpiexec_command", lambda *_: ["sleep", "600"])

    class OneNode:
        served, network = threading.Event(), ""

        def __getitem__(self, host):
            if host == "lost":
                raise NodeError("the node of lost is lost")
            return self

        def send(self, kind, **fields):
            self.served.set()

    mpi = Mpi(Hosts([Host("192.0.2.1", 1)]), OneNode(), {})
    with socket.socket(socket.AF_UNIX) as lost, socket.socket(socket.AF_UNIX) as other:
        for proxy, host in ((lost, "lost"), (other, "other")):
            proxy.connect(mpi._environment[LAUNCHER])
            Channel(proxy).send(host=host, line="")
        assert OneNode.served.wait(20)
        assert lost.recv(1) == b""  # mpiexec sees that the host is lost
    mpi.close()
