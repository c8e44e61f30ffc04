"""Tests that all ranks end, even inside a collective, when a signal ends horovodrun, mpiexec or xmc_tf.launch."""

import os
import signal

import psutil
import pytest

from tests.distributed.launch import horovodrun, is_running, mpiexec, wait_for

pytestmark = pytest.mark.distributed

PROGRAM = "waiting.py"


def end_launcher(number, pids):
    """Return a function for ``during`` that signals the launcher when the ranks wait, and waits for their end.

    ``pids`` gets the ranks' numbers.
    """

    def end(folder):
        outputs = [folder / "0.out", folder / "1.out"]
        wait_for(lambda: all(path.exists() and "is here" in path.read_text() for path in outputs), what="the ranks")
        pids.extend(int((folder / f"{rank}.pid").read_text()) for rank in range(2))
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
def test_ranks_end_with_their_launcher(start, number, tmp_path):
    run = mpiexec if start == "mpiexec" else horovodrun
    # Without a warm process between this one and the launcher.
    options = {} if start == "mpiexec" else {"engine": start.rpartition("-")[2], "cold": True}
    pids = []
    done = run(
        PROGRAM, check=False, timeout=90, during=end_launcher(number, pids), env={"TMPDIR": str(tmp_path)}, **options
    )
    assert len(pids) == 2
    assert done.leftovers == 0, done.describe()
    for rank in done.ranks:
        assert "Traceback" not in rank.output
