"""Functions that run commands on the hosts of ``cluster.py``: the launcher, horovodrun, and what they start."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.distributed.cluster import SLOTS
from tests.distributed.launch import PROGRAMS, wait_for

LAUNCH = [sys.executable, "-m", "xmc_tf.launch"]
LAUNCHED = str(PROGRAMS / "launched.py")


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


def finish(process, timeout=900):
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


def launch(hosts, *arguments, timeout=900):
    """Run the launcher on host ``one`` with all hosts."""
    return finish(start(hosts, "one", *LAUNCH, "--hosts", hosts.folder / "hosts.json", *arguments), timeout)


def start_by_hand(hosts, *arguments, slots=SLOTS, nodes=None):
    """Start the launcher on each of these hosts, without ssh; the first process is the master."""
    flags = ["--nodes", nodes or len(slots), "--master-addr", "one", "--secret-file", hosts.folder / "secret"]
    return [
        start(hosts, host, *LAUNCH, *flags, "--node-rank", number, "--np", count, *arguments)
        for number, (host, count) in enumerate(slots.items())
    ]


def launch_by_hand(hosts, *arguments, slots=SLOTS):
    """Run the launcher on each host, without ssh; return the greatest status, and the output of the master."""
    ended = [finish(node) for node in start_by_hand(hosts, *arguments, slots=slots)]
    return max(status for status, _ in ended), ended[0][1]


def assert_none_left(hosts):
    """Check that no process is left on any host."""
    wait_for(lambda: not hosts.processes(), 40, "the end of all processes on all hosts")


def rankers(corpus, model):
    """Return the module and the flags that train rankers."""
    return ["-m", "xmc_tf.linear.train", "-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", model, "-n", 1]
