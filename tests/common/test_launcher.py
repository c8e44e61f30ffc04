"""Tests that a rank ends with its launcher, and that other processes do not end with their ancestors."""

import os
import signal
import subprocess
import sys

import pytest

from xmc_tf.common.process.launcher import RANK_VARIABLES, launcher_of, process_state

RANK = """
import os, sys, time
from xmc_tf.common.process import cli
def main(argv):
    print(os.getpid(), flush=True)
    time.sleep({seconds})
    print("done", flush=True)
cli.run(main, [])
"""
# Starts a rank and keeps running, as launchers do.
START = "import subprocess, sys; subprocess.run([sys.argv[1], '-c', sys.argv[2]])"
AS_RANK = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}


def killed_above(name, variables, seconds, begin=START):
    """Return the output of a process after its parent, with the given name, has been killed."""
    environment = {key: value for key, value in os.environ.items() if key not in RANK_VARIABLES} | variables
    environment["PATH"] = "/nowhere"  # Python looks there for its own name, and would find a real sshd
    above = subprocess.Popen(
        [name, "-c", begin, sys.executable, RANK.format(seconds=seconds)], executable=sys.executable, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    with above.stdout as output:
        pid = int(next(line for line in output if line.strip().isdigit()))  # below what it cleans up
        above.kill()
        above.wait()
        return output.read(), pid  # until the rank ends, which writes there too


def test_a_rank_ends_with_its_launcher():
    said, rank = killed_above("mpirun", AS_RANK, seconds=60)
    assert "the launcher (mpirun, pid " in said
    assert said.endswith(") has ended: this rank ends too\ninterrupted by SIGTERM\n")
    assert process_state(rank) == "ended"


DAEMON = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.argv[1], [sys.argv[1], "-c", sys.argv[2]])
    os._exit(0)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("name", "variables", "begin"),
    [
        ("python", {}, START),  # a shell or terminal that ends
        ("python", {}, DAEMON),
        ("mpirun", {}, START),  # not a rank: a child of a rank, or another program with that name
        ("sshd", AS_RANK, START),  # a rank of an unknown launcher, which may start daemons
        ("slurmstepd", AS_RANK, START),
    ],
)
def test_other_processes_do_not_end_with_their_parent(name, variables, begin):
    said, _ = killed_above(name, variables, seconds=0.5, begin=begin)
    assert said == "done\n"


def test_a_process_that_nobody_has_waited_for_has_ended():
    assert process_state(os.getpid()) == "running"
    child = subprocess.Popen(["sleep", "60"])
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert process_state(child.pid) == "stopped"
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process_state(child.pid) == "ended"
    child.wait()
    assert process_state(child.pid) == "ended"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("mpirun -n 2 train", "mpirun"),
        ("orted --hnp-topo-sig 1", "orted"),
        ("/usr/bin/python3.11 -u /usr/bin/horovodrun -np 2 python train.py", "horovodrun"),
        ("python -m horovod.runner.launch -np 2 python train.py", "horovod.runner.launch"),
        ("python3 -X dev -m xmc_tf.launch --np 2 train.py", "xmc_tf.launch"),
        ("python -m xmc_tf launch --np 2 train.py", "xmc_tf.launch"),
        ("/venv/bin/python /venv/bin/xmc-tf launch --np 2 train.py", "xmc_tf.launch"),
        ("python /venv/bin/xmc-tf train launch", ""),
        ("python -m xmc_tf train mpirun", ""),
        ("python -m other.launch horovodrun", ""),
        ("python -m", ""),
        ("", ""),
        ("grep horovodrun", ""),
    ],
)
def test_launchers_are_distinguished_from_other_programs(line, name):
    assert launcher_of(line.split(" ")) == name


def test_horovodrun_over_mpi_is_distinguished_from_a_users_shell():
    by_horovod = "mpirun --allow-run-as-root --tag-output -np 2 -H localhost:2"
    assert launcher_of(["/bin/sh", "-c", by_horovod]) == "horovodrun"
    assert not launcher_of(["/bin/sh", "-c", "mpirun -np 2 python train.py &"])
    assert not launcher_of(["bash", "-c"])
