"""Tests that ranks that wait forever end in time and report the state of each rank, over Gloo and MPI."""

import os
import re
import signal
from functools import partial

import pytest

from tests.distributed.launch import PROGRAMS, horovodrun, mpiexec, python, wait_for

pytestmark = pytest.mark.distributed

TIMEOUT = 8
RANK = r"^  rank {} \(pid \d+ on \S+\) "


def line(run, rank):
    """Return the only line that reports a rank."""
    said = re.findall(RANK.format(rank) + "(.*)$", "\n".join(one.output for one in run.ranks), re.MULTILINE)
    assert len(said) == 1, run.describe()
    return said[0]


def stalled(how, size, engine, *arguments, **options):
    """Return a run that stalls."""
    start = mpiexec if engine == "mpiexec" else partial(horovodrun, engine=engine)
    run = start("stalled_training.py", how, *arguments, world=size, check=False, **options)
    assert run.returncode == 1, run.describe()
    assert run.leftovers == 0
    assert all("trained" in rank.output for rank in run.ranks)
    assert "went on" not in "".join(rank.output for rank in run.ranks)
    return run


def test_a_rank_that_skips_a_lookup_is_reported_with_both_collectives():
    # The environment overrides the program.
    run = stalled("skip", 2, "mpiexec", "3600", env={"XMC_TF_STALL_TIMEOUT": str(TIMEOUT)})
    assert_both_ways(line(run, 0), line(run, 1))
    assert f"failed: aborted after {TIMEOUT} s without progress (--stall-timeout)\n" in run.ranks[0].output


def assert_both_ways(waits, leaves_out):
    place = r"; stalled_training\.py:\d+ in <module>: step\("
    assert re.search(rf"^waits in .*items/ids for \d+ s.*{place}", waits)
    sums = r"waits in xmc_tf/gradients/float32 for \d+ s"
    assert re.match(sums + place, leaves_out)


@pytest.mark.full
def test_stopped_and_sleeping_ranks_are_distinguished():
    run = stalled("away", 3, "gloo", str(TIMEOUT))
    assert re.search(r"stall: rank 0 has waited \d+ s for rank 1, 2, which are elsewhere\n", run.ranks[0].output)
    assert line(run, 0).startswith("waits in ")
    assert line(run, 1) == "is stopped, by a signal or a debugger"
    assert re.match(r"is in no collective; stalled_training\.py:\d+ in turn_aside: time\.sleep\(600\)", line(run, 2))


@pytest.mark.full
@pytest.mark.parametrize(("gloo", "timeout"), [({}, 35), ({"HOROVOD_GLOO_TIMEOUT_SECONDS": "6"}, 90)])
def test_a_stopped_rank_is_named_under_gloo(gloo, timeout):
    """Gloo, which waits for 30 s, once ended the run before the watch did, and the ranks blamed each other."""
    environment = {"XMC_TF_STALL_TIMEOUT": str(timeout), **gloo}
    run = horovodrun("stalled.py", "stopped", engine="gloo", world=3, check=False, timeout=120, env=environment)
    assert run.returncode == 1, run.describe()
    said = run.ranks[0].output + run.ranks[2].output
    assert re.search(r"rank 1 \(pid \d+ on \S+\) is stopped, by a signal or a debugger\n", said), run.describe()
    assert "another rank has ended" not in said
    assert (f"failed: aborted after {timeout} s without progress" in said) == (not gloo)


@pytest.mark.full
def test_the_launcher_quotes_a_stall_without_tensorflow_while_the_watches_are_attacked():
    options = ["--np", "3", "--controller", "mpi", "--timeout", "300", "--stall-timeout", str(TIMEOUT)]
    program = [str(PROGRAMS / "stalled.py"), "attacked"]
    run = python("module:xmc_tf.launch", *options, *program, timeout=90, check=False)
    assert run.returncode == 1, run.describe()
    assert run.leftovers == 0
    shown = run.ranks[0].output
    end = shown[shown.rindex("\nfailed: rank ") :]
    assert re.search(r"failed: rank 0 \(pid \d+ on \S+\) ended with exit status 1\. The others were stopped", end)
    assert re.search(r"^    stall: rank 0 has waited \d+ s for rank 1, which is elsewhere$", end, re.MULTILINE)
    said = dict(re.findall(r"^      rank (\d) \(pid \d+ on \S+\) (.*)$", end, re.MULTILINE))
    assert re.match(
        r"waits in xmc_tf/communicator/.* for \d+ s; stalled\.py:\d+ in <module>: ranks = world\.all", said["0"]
    )
    assert re.match(r"is in no collective; stalled\.py:\d+ in <module>: time\.sleep", said["1"])
    assert said["2"].startswith("waits in xmc_tf/communicator/")


@pytest.mark.full
def test_without_a_timeout_a_stall_is_only_logged():
    def let_go(folder):
        wait_for(lambda: (folder / "0.out").exists() and "stall: " in (folder / "0.out").read_text(), seconds=60)
        os.kill(int((folder / "1.pid").read_text()), signal.SIGCONT)

    run = mpiexec("stalled.py", "warned", during=let_go)
    assert re.search(r"stall: rank 0 has waited \d+ s for rank 1, which is elsewhere\n", run.ranks[0].output)
    assert [rank.result for rank in run.ranks] == [[0, 1]] * 2
