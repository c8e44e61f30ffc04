"""Tests that all ranks end, even inside a collective, when a signal ends horovodrun, mpiexec or xmc_tf.launch."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.distributed.launch import horovodrun, is_running, mpiexec, wait_for

pytestmark = [pytest.mark.distributed, pytest.mark.full]

PROGRAM = ("trouble.py", "hang")


def end_launcher(number, pids, segments):
    """Return a function for ``during`` that signals the launcher when the ranks wait, and waits for their end.

    ``pids`` gets the ranks' numbers, ``segments`` Open MPI's files in shared memory.
    """

    def end(folder):
        outputs = [folder / "0.out", folder / "1.out"]
        wait_for(lambda: all(path.exists() and "is here" in path.read_text() for path in outputs), what="the ranks")
        pids.extend(int((folder / f"{rank}.pid").read_text()) for rank in range(2))
        maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in pids)
        segments.update(map(Path, re.findall(r"/dev/shm/vader\S+", maps)))
        # The child of this process; over MPI, mpirun is a child of it.
        above = [parent.pid for parent in psutil.Process(pids[0]).parents()]
        os.kill(above[above.index(os.getpid()) - 1], number)
        wait_for(lambda: not any(map(is_running, pids)), seconds=30, what="the end of all ranks")

    return end


@pytest.mark.parametrize(
    ("start", "number"),
    [
        ("horovodrun --mpi", signal.SIGTERM),
        ("mpiexec", signal.SIGKILL),
    ],
)
def test_ranks_end_with_their_launcher_and_the_next_run_removes_what_they_leave(start, number, tmp_path):
    run = mpiexec if start == "mpiexec" else horovodrun
    # Without a warm process between this one and the launcher.
    options = {} if start == "mpiexec" else {"engine": start.rpartition("-")[2], "cold": True}
    pids, segments, environment = [], set(), {"TMPDIR": str(tmp_path)}
    during = end_launcher(number, pids, segments)
    done = run(*PROGRAM, check=False, timeout=90, during=during, env=environment, **options)
    assert len(pids) == 2
    assert done.leftovers == 0, done.describe()
    for rank in done.ranks:
        assert "Traceback" not in rank.output
    left = [path for path in segments if path.exists()]
    if start == "mpiexec":
        assert left
        assert list(tmp_path.glob("ompi.*/pid.*"))
    clean_up = (
        "from xmc_tf.common.process import cli, leftovers; leftovers._LEAST_AGE_S = 0; cli.run(lambda argv: None)"
    )
    next_run = subprocess.run(
        [sys.executable, "-c", clean_up], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )
    assert next_run.returncode == 0, next_run.stderr
    assert not any(path.exists() for path in segments)
    assert not list(tmp_path.glob("ompi.*"))
    assert all(str(path) in next_run.stderr for path in left)
