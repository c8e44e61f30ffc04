"""The end of horovodrun, mpiexec or xmc_tf.launch, by any signal, is the end of all ranks, also inside a collective."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.campaigns.killed_runs import shared_memory
from tests.distributed.launch import horovodrun, is_running, mpiexec, wait_for

pytestmark = pytest.mark.distributed

WORKER = "waiting.py"


def end_launcher(number, pids):
    """For ``during``: sends the signal to the launcher when the ranks wait for one another, and waits for their end."""

    def end(folder):
        outputs = [folder / "0.out", folder / "1.out"]
        wait_for(lambda: all(path.exists() and "is here" in path.read_text() for path in outputs), what="the ranks")
        pids.extend(int((folder / f"{rank}.pid").read_text()) for rank in range(2))
        # The test's own child: over MPI, mpirun is another process below it.
        above = [parent.pid for parent in psutil.Process(pids[0]).parents()]
        os.kill(above[above.index(os.getpid()) - 1], number)
        wait_for(lambda: not any(map(is_running, pids)), seconds=30, what="the end of all ranks")

    return end


@pytest.mark.parametrize(
    ("start", "number"),
    [
        ("horovodrun --mpi", signal.SIGTERM),
        ("horovodrun --gloo", signal.SIGKILL),
        ("mpiexec", signal.SIGKILL),
    ],
)
def test_ranks_end_with_their_launcher_and_the_next_run_removes_what_they_leave(start, number, tmp_path):
    run = mpiexec if start == "mpiexec" else horovodrun
    options = {} if start == "mpiexec" else {"engine": start.rpartition("-")[2]}
    pids, environment, before = [], {"TMPDIR": str(tmp_path)}, shared_memory()
    done = run(WORKER, check=False, timeout=90, during=end_launcher(number, pids), env=environment, **options)
    assert len(pids) == 2
    assert done.leftovers == 0, done.describe()
    for rank in done.ranks:
        assert "Traceback" not in rank.output
    left = {path for path in shared_memory() - before if not path.startswith("sem.")}
    if start == "mpiexec":
        assert left
        assert list(tmp_path.glob("ompi.*/pid.*"))
    clean_up = "from xmc_tf.common import cli; cli.run(lambda argv: None)"
    next_run = subprocess.run(
        [sys.executable, "-c", clean_up], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )
    assert next_run.returncode == 0, next_run.stderr
    assert not left & shared_memory()
    assert not list(tmp_path.glob("ompi.*"))
    assert all(str(path) in next_run.stderr for path in left)
