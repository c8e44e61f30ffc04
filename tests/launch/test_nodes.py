"""Tests of the nodes: how they start, answer, and are lost. For those on other hosts see ``tests/distributed``."""

import os
import re

import psutil
import pytest

from tests.distributed.launch import is_running, wait_for
from tests.refusals import refused
from xmc_tf.launch.hosts import Host, Hosts
from xmc_tf.launch.manual_nodes import _connect
from xmc_tf.launch.node import JOB, START
from xmc_tf.launch.nodes import NodeError, Nodes

HERE = Hosts([Host("localhost", 1)])


def started():
    """Return nodes, of which one runs on this host."""
    made = Nodes("127.0.0.1", timeout_s=60)
    made.start(HERE, 60)
    assert made.errors == {}
    return made


@pytest.fixture(scope="module")
def nodes():
    made = started()
    yield made
    made.close(0)


def ask(nodes, step, **fields):
    """Return the answer of the only node, and what has failed."""
    nodes.errors.clear()
    return nodes.ask_all(HERE, 1, step, **fields).get("localhost"), dict(nodes.errors)


def test_a_node_answers_what_the_checks_ask(nodes):
    here = {"folder": ".", "paths": [], "shared": ".", "mark": "", "token": ""}
    port = ask(nodes, "look", **here)[0]["port"]
    hosts = [["self", "127.0.0.1", port], ["none", "127.0.0.1", 9]]
    assert ask(nodes, "connect", targets=hosts, patience_s=5)[0] == {"unreachable": ["none"]}
    assert nodes["localhost"].network == "127.0.0.0/8"
    _, errors = ask(nodes, "look", **here | {"folder": "/nowhere"})
    assert "No such file or directory: '/nowhere'" in errors["localhost"]


def test_another_secret_file_is_named_where_it_is_used(tmp_path):
    """A wrong secret was once "no connection", with the advice to check the firewall."""
    first = Nodes("127.0.0.1", timeout_s=2, secret=bytes(32))
    try:
        address = first._listener.address
        refused("--secret-file: 127.0.0.1:.* has another secret", _connect, address, bytes(range(32)), 10.0)
        refused("no connection from node 1 within 2 s", first.wait, 1, 2)
    finally:
        first.close(0)


def test_the_secret_is_on_no_command_line_and_in_no_variable(nodes):
    (node,) = (child for child in psutil.Process().children() if "xmc_tf.launch.node" in child.cmdline())
    assert not re.search(r"[0-9a-f]{64}", str([node.cmdline(), node.environ()]))
    assert "/" in nodes["localhost"].proxies
    assert os.stat(os.path.dirname(nodes["localhost"].proxies)).st_mode & 0o777 == 0o700


def start(nodes, *program, **job):
    """Start a rank, and return its node's messages until it ends."""
    node = nodes["localhost"]
    variables = {"MORE": "x", "OMP_NUM_THREADS": "8"}
    node.send(JOB, run=7, program=program, environment=variables, gpus=["5"], threads=3, pin=True, **job)
    node.send(START, environment={"HOROVOD_RANK": "4", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1"})
    messages = []
    while not messages or messages[-1]["kind"] != "end":
        messages.append(nodes.events.get(timeout=60)[1])
        assert (messages[-1]["run"], messages[-1]["rank"]) == (7, 4)
    return messages


def test_a_rank_has_the_variables_of_the_job(nodes):
    started, line, end = start(
        nodes, "sh", "-c", "echo $MORE $CUDA_VISIBLE_DEVICES $TF_NUM_INTEROP_THREADS $OMP_NUM_THREADS"
    )
    assert started["pid"] > 0
    words = line["text"].split()
    assert (line["stream"], words[:2], words[-1]) == ("out", ["x", "5"], "8")  # that of the user
    assert (end["status"], end["stopped"]) == (0, False)


def test_a_program_that_cannot_start_is_the_failure_of_its_rank(nodes):
    _, line, end = start(nodes, "/no/such/program")
    assert "/no/such/program" in line["text"]
    assert end["status"] == 127


def test_a_node_that_is_killed_is_lost_and_its_rank_ends():
    nodes = started()
    node = nodes["localhost"]
    node.send(JOB, run=1, program=["sleep", "600"], environment={}, gpus=[], threads=None, pin=False)
    node.send(START, environment={"HOROVOD_RANK": "0", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1"})
    pid = nodes.events.get(timeout=60)[1]["pid"]
    psutil.Process(pid).parent().kill()
    assert nodes.events.get(timeout=60) == ("localhost", None)
    wait_for(lambda: not is_running(pid), what="the end of the rank")
    with pytest.raises(NodeError, match="the node of localhost is lost"):
        nodes["localhost"]
    nodes.close(1)


def test_a_node_that_cannot_start_is_reported_with_its_last_line(monkeypatch):
    nodes = Nodes("127.0.0.1", timeout_s=60)
    monkeypatch.setattr("sys.executable", "/bin/false")
    nodes.start(HERE, 60)
    nodes.close(1)
    assert nodes.errors == {"localhost": "ended with status 1"}
