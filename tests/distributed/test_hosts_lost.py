"""Tests that no process survives on any host, whatever ends a run, and that runs go on when hosts are lost."""

import os
import signal

import pytest

from tests.distributed.launch import PROGRAMS, wait_for
from tests.distributed.on_hosts import (
    LAUNCH,
    LAUNCHED,
    assert_none_left,
    await_line,
    finish,
    rankers,
    start,
    start_by_hand,
)
from tests.files import contents

pytestmark = [pytest.mark.distributed, pytest.mark.full]
TIMEOUT = 120  # a host is lost after a quarter of it: longer than a busy machine makes a host wait
WAITS = r"^\[\d\] pid \d+ waits"


@pytest.mark.parametrize(
    ("controller", "number"),
    [("gloo", signal.SIGINT), ("mpi", signal.SIGKILL)],
)
def test_nothing_survives_the_launcher_on_any_host(hosts, controller, number):
    command = [*LAUNCH, "--hosts", hosts.folder / "hosts.json", "--controller", controller, LAUNCHED, "wait"]
    process = start(hosts, "one", *command)
    await_line(process, WAITS, 4)
    os.kill(process.pid, number)
    status, said = finish(process)
    assert status == (-9 if number == signal.SIGKILL else 128 + number), said
    assert_none_left(hosts)


def test_nothing_survives_ctrl_c_during_the_checks(hosts):
    process = start(hosts, "one", *LAUNCH, "--hosts", hosts.folder / "hosts.json", LAUNCHED, "wait")
    node = "xmc_tf.launch.node"
    wait_for(lambda: any(node in line for line in hosts.processes_of("two").values()), 60, "the node of host two")
    os.kill(process.pid, signal.SIGINT)
    status, said = finish(process)
    assert status == 130, said
    assert "Traceback" not in said
    assert_none_left(hosts)


def test_nothing_survives_ctrl_c_while_a_node_is_missing(hosts):
    nodes = start_by_hand(hosts, LAUNCHED, "wait", slots={"one": 2, "two": 1}, nodes=3)
    await_line(nodes[1], "node 1 has connected to node 0")
    os.kill(nodes[0].pid, signal.SIGINT)
    (master, said), (node, _) = (finish(node) for node in nodes)
    assert master == 130, said
    assert node != 0
    assert "Traceback" not in said
    assert_none_left(hosts)


def test_nothing_survives_a_node_that_is_killed(hosts):
    nodes = start_by_hand(hosts, LAUNCHED, "wait")
    await_line(nodes[0], WAITS, 4)
    nodes[1].kill()
    statuses = [finish(node)[0] for node in nodes]
    assert statuses[1] == -9
    assert statuses[0] == statuses[2] != 0
    assert_none_left(hosts)


def test_all_ranks_stop_when_a_host_is_cut_off(hosts):
    command = [*LAUNCH, "--hosts", hosts.folder / "hosts.json", "--timeout", TIMEOUT, LAUNCHED, "wait"]
    process = start(hosts, "one", *command)
    await_line(process, WAITS, 4)
    with hosts.cut_off("three"):
        status, said = finish(process)
        assert status == 1
        assert "rank 3" in said
        assert "on three) was lost" in said
        # Also the rank that was cut off, whose host sees no launcher any more.
        assert_none_left(hosts)


def test_with_min_np_a_training_survives_the_loss_of_a_host(hosts, features, one_model, tmp_path):
    hold = tmp_path / "hold"
    options = ["--controller", "mpi", "--timeout", TIMEOUT, "--min-np", 2]
    program = [PROGRAMS / "linear_training.py", "0.1", *rankers(features, tmp_path / "model")[2:]]
    command = [*LAUNCH, "--hosts", hosts.folder / "hosts.json", *options, *program]
    process = start(hosts, "one", "env", f"XMC_TF_TEST_HOLD={hold}", *command)
    blocks = tmp_path / "model.work" / "blocks"
    wait_for(lambda: process.poll() is not None or any(blocks.glob("*.columns")), 60, "a solved sub-problem")
    assert process.poll() is None, process.log.read_text(errors="replace")
    hold.touch()  # the training goes on without the host
    with hosts.cut_off("three"):
        await_line(process, r"^restarting on 3 ranks \(one:2,two:1\)$")
        hold.unlink()
        status, said = finish(process)
    assert status == 0, said
    assert contents(tmp_path / "model") == one_model
    assert_none_left(hosts)
