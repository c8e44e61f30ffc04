"""Tests of runs on three hosts: network namespaces with an sshd each, and 2, 1 and 1 ranks.

Where namespaces are not permitted, or sshd is missing, the same commands run on this host only, and the module says so.
"""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from tests.distributed import cluster
from tests.distributed.cluster import SLOTS, Cluster
from tests.distributed.launch import PROGRAMS, REPOSITORY, python, wait_for
from tests.linear.command_data import write_corpus as write_features
from tests.pipeline.corpus import train_flags, write_corpus

pytestmark = pytest.mark.distributed

PROBLEM = cluster.why_not()
needs_hosts = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)
LAUNCH = [sys.executable, "-m", "xmc_tf.launch"]
LAUNCHED = str(PROGRAMS / "launched.py")
TIMEOUT = 40  # a host is lost after a quarter of it


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Return three hosts."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        (made.folder / "hosts.json").write_text(json.dumps(SLOTS))
        secret = made.folder / "secret"
        secret.write_text("a secret of the test\n")
        secret.chmod(0o600)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Write texts, labels and a tiny encoder, and features."""
    folder = tmp_path_factory.mktemp("corpus")
    write_features(folder)
    return write_corpus(folder)


def start(hosts, host, *command):
    """Start a command on a host; its output goes to a file."""
    log = (hosts.folder / f"log-{len(list(hosts.folder.glob('log-*')))}").open("w+b")
    process = subprocess.Popen(
        hosts.command(host, *map(str, command)), env=hosts.environment(),
        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    process.log = Path(log.name)
    log.close()
    return process


def finish(process, timeout=100):
    """Wait for a command, and return its status and its output."""
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"no end in {timeout} s:\n{process.log.read_text()[-5000:]}") from None
    return status, process.log.read_text(errors="replace")


def await_line(process, pattern, count=1):
    """Wait until a pattern is in the output of a command as often as this."""

    def found():
        if process.poll() is not None:
            raise AssertionError(f"ended with {process.poll()}:\n{process.log.read_text()[-3000:]}")
        return len(re.findall(pattern, process.log.read_text(errors="replace"), re.MULTILINE)) >= count

    try:
        wait_for(found, 90, f"{count} times {pattern}")
    except AssertionError:
        print(process.log.read_text(errors="replace")[-3000:])
        raise


def launch(hosts, *arguments, timeout=100):
    """Run the launcher on host ``one`` with all hosts."""
    return finish(start(hosts, "one", *LAUNCH, "--hosts", hosts.folder / "hosts.json", *arguments), timeout)


def launch_by_hand(hosts, *arguments, timeout=100):
    """Start the launcher on each host, without ssh; return the status of all, and the output of the master."""
    flags = ["--nodes", 3, "--master-addr", "one", "--secret-file", hosts.folder / "secret"]
    nodes = [
        start(hosts, host, *LAUNCH, *flags, "--node-rank", number, "--np", SLOTS[host], *arguments)
        for number, host in enumerate(SLOTS)
    ]
    ended = [finish(node, timeout) for node in nodes]
    return [status for status, _ in ended], ended[0][1]


def assert_none_left(hosts):
    wait_for(lambda: not hosts.processes(), 40, "the end of all processes on all hosts")


def contents(model):
    return {str(path.relative_to(model)): path.read_bytes() for path in sorted(model.rglob("*")) if path.is_file()}


def rankers(corpus, model):
    return ["-m", "xmc_tf.linear.train", "-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", model, "-n", 1]


@pytest.fixture(scope="module")
def one_process(corpus, tmp_path_factory):
    """Return the rankers that a single process trains."""
    model = tmp_path_factory.mktemp("one") / "model"
    python("module:xmc_tf.linear.train", *map(str, rankers(corpus, model)[2:]))
    return contents(model)


def losses(text):
    return re.findall(r"loss ([\d.]+)", text)


@needs_hosts
def test_fine_tuning_on_three_hosts_gives_the_losses_and_bytes_of_one_host(hosts, corpus, tmp_path):
    def flags(model):
        return ["-m", "xmc_tf.train", *train_flags(corpus, tmp_path / model, "--logging-steps", 1)]

    here = finish(start(hosts, "one", *LAUNCH, "--np", 2, *flags("here")), 200)
    logs = ["--log-dir", tmp_path / "logs"]
    there = finish(start(hosts, "one", *LAUNCH, "-H", "two:1,three:1", *logs, *flags("there")), 200)
    assert (here[0], there[0]) == (0, 0), here[1] + there[1]
    assert losses(there[1]) == losses(here[1])
    assert len(losses(here[1])) > 2
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    logs = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert set(logs) == {f"rank.{rank}.log" for rank in range(2)}
    assert losses(logs["rank.0.log"]) == losses(here[1])
    assert_none_left(hosts)


@needs_hosts
@pytest.mark.parametrize("how", ["ssh mpi", "by hand mpi", "by hand gloo", "horovodrun"])
def test_rankers_are_the_bytes_of_one_process_however_they_are_started(how, hosts, corpus, one_process, tmp_path):
    program = rankers(corpus, tmp_path / "model")
    if how == "horovodrun":
        command = [sys.executable, "-m", "horovod.runner.launch", "--gloo", "-np", 2, "-H", "two:1,three:1"]
        # It takes the same name of the network for all hosts.
        for host in ("two", "three"):
            hosts.rename_interface(host, "eth0")
        runner = start(
            hosts, "one", *command, "--network-interfaces", "eth0", "--disable-cache", sys.executable, *program
        )
        status, said = finish(runner)
        statuses = [status]
    elif how == "ssh mpi":
        status, said = launch(hosts, "--controller", "mpi", *program)
        statuses = [status]
    else:
        statuses, said = launch_by_hand(hosts, "--controller", how.split()[-1], *program)
    assert not any(statuses), said
    assert contents(tmp_path / "model") == one_process
    assert_none_left(hosts)


@needs_hosts
def test_a_host_that_is_down_is_named_before_the_start(hosts):
    with hosts.cut_off("three"):
        status, said = launch(hosts, "--timeout", 20, LAUNCHED, "place")
    assert status == 1
    assert re.search(r"^three +1 +no !", said, re.MULTILINE), said
    assert re.findall(r"^(\w+): not reached", said, re.MULTILINE) == ["three"]
    assert "[0]" not in said


@needs_hosts
def test_the_check_measures_all_links_and_names_slow_ones(hosts):
    check = ["--controller", "mpi", "-m", "xmc_tf.check", "--megabytes", 2, "--json"]
    with hosts.slowed("two", "100mbit"):
        status, said = launch(hosts, *check)
    assert status == 0, said
    report = json.loads(re.search(r"^\[0\] (\{.*\})$", said, re.MULTILINE)[1])
    assert {frozenset(link["hosts"]) for link in report["links"]} == {
        frozenset(pair) for pair in combinations(SLOTS, 2)
    }
    slow = [re.search(r"slow link: (\w+) – (\w+):", warning) for warning in report["warnings"]]
    assert {frozenset(found.groups()) for found in slow if found} == {
        frozenset(("one", "two")), frozenset(("two", "three"))
    }  # fmt: skip


@needs_hosts
def test_different_hosts_are_named_before_the_start(hosts, tmp_path):
    """Host two has another version and other data; host three has other folders and too few GPUs."""
    data, shared, python_path = tmp_path / "X.txt", tmp_path / "shared", tmp_path / "path"
    data.write_text("the data\n")
    other = tmp_path / "other.txt"
    other.write_text("old data\n")
    for folder in (shared, python_path, tmp_path / "empty", tmp_path / "two", tmp_path / "three"):
        folder.mkdir()
    # What a host has installed besides the others, which here have the same files.
    metadata = tmp_path / "two" / "transformers-4.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 4.0\n")
    for host, gpus in (("path", 2), ("two", 2), ("three", 0)):
        (tmp_path / host / "pynvml.py").write_text(_PYNVML.format(gpus=gpus))
    with (
        hosts.mounted("two", other, data),
        hosts.mounted("two", tmp_path / "two", python_path),
        hosts.mounted("three", tmp_path / "empty", shared),
        hosts.mounted("three", tmp_path / "three", python_path),
    ):
        flags = ["--check-only", "--shared-folder", shared, LAUNCHED, data]
        environment = [f"PYTHONPATH={python_path}:{REPOSITORY}", "CUDA_VISIBLE_DEVICES=0,1"]
        process = start(hosts, "one", "env", *environment, *LAUNCH, "--hosts", hosts.folder / "hosts.json", *flags)
        status, said = finish(process)
    assert status == 1, said
    problems = re.findall(r"^(\w+): (.+)\n  fix: .+", said, re.MULTILINE)
    assert [(host, problem.split(":")[0].split(" instead")[0]) for host, problem in problems] == [
        ("two", "different versions"),
        ("two", f"{data} differs from this host's"),
        ("three", f"{shared} is not shared"),
        ("three", "too few GPUs"),
    ], said
    assert "transformers 4.0 instead of" in said


_PYNVML = """
class NVMLError(Exception): pass
class Memory: used, total, gpu = 0, 1, 0
nvmlInit = nvmlShutdown = lambda: None
nvmlDeviceGetCount = lambda: {gpus}
nvmlDeviceGetHandleByIndex = lambda number: number
nvmlDeviceGetMemoryInfo = nvmlDeviceGetUtilizationRates = lambda handle: Memory
nvmlDeviceGetUUID = lambda handle: f"GPU-{{handle}}"
"""


_WAITS = r"^\[\d\] pid \d+ waits"


@needs_hosts
@pytest.mark.parametrize(
    ("controller", "number"),
    [("gloo", signal.SIGKILL), ("mpi", signal.SIGKILL), ("gloo", signal.SIGINT), ("mpi", signal.SIGTERM)],
)
def test_nothing_survives_the_launcher_on_any_host(hosts, controller, number):
    command = [*LAUNCH, "--hosts", hosts.folder / "hosts.json", "--controller", controller, LAUNCHED, "wait"]
    process = start(hosts, "one", *command)
    await_line(process, _WAITS, 4)
    os.kill(process.pid, number)
    status, said = finish(process, 40)
    assert status == (-9 if number == signal.SIGKILL else 128 + number), said
    assert_none_left(hosts)


@needs_hosts
def test_nothing_survives_a_node_that_is_killed(hosts):
    flags = ["--nodes", 3, "--master-addr", "one", "--secret-file", hosts.folder / "secret"]
    nodes = [
        start(hosts, host, *LAUNCH, *flags, "--node-rank", number, "--np", SLOTS[host], LAUNCHED, "wait")
        for number, host in enumerate(SLOTS)
    ]
    await_line(nodes[0], _WAITS, 4)
    nodes[1].kill()
    statuses = [finish(node, 60)[0] for node in nodes]
    assert statuses[1] == -9
    assert statuses[0] == statuses[2] != 0
    assert_none_left(hosts)


@needs_hosts
def test_all_ranks_stop_when_a_host_is_cut_off(hosts):
    command = [*LAUNCH, "--hosts", hosts.folder / "hosts.json", "--timeout", TIMEOUT, LAUNCHED, "wait"]
    process = start(hosts, "one", *command)
    await_line(process, _WAITS, 4)
    with hosts.cut_off("three"):
        status, said = finish(process, 60)
        assert status == 1
        assert "rank 3" in said
        assert "on three) was lost" in said
        # Also the rank that was cut off, whose host sees no launcher any more.
        assert_none_left(hosts)


@needs_hosts
def test_with_min_np_a_training_survives_the_loss_of_a_host(hosts, corpus, one_process, tmp_path):
    command = [
        *LAUNCH,
        "--hosts",
        hosts.folder / "hosts.json",
        "--controller",
        "mpi",
        "--timeout",
        TIMEOUT,
        "--min-np",
        2,
    ]
    program = [PROGRAMS / "linear_training.py", "0.1", *rankers(corpus, tmp_path / "model")[2:]]
    process = start(hosts, "one", *command, *program)
    blocks = tmp_path / "model.work" / "blocks"
    wait_for(lambda: len(list(blocks.glob("*.columns"))) >= 1, 60, "a solved sub-problem")
    with hosts.cut_off("three"):
        status, said = finish(process, 90)
    assert status == 0, said
    assert "restarting on 3 ranks (one:2,two:1)" in said
    assert contents(tmp_path / "model") == one_process
    assert_none_left(hosts)


@pytest.mark.skipif(not PROBLEM, reason="there are several hosts")
def test_without_several_hosts_the_same_run_works_on_one(corpus, one_process, tmp_path):
    flags = ["-H", "localhost:2", "--controller", "mpi", *map(str, rankers(corpus, tmp_path / "model"))]
    run = python("module:xmc_tf.launch", *flags)
    assert run.returncode == 0
    assert contents(tmp_path / "model") == one_process
