"""Tests that ranks that wait forever end in time and report the state of each rank, over Gloo and MPI."""

import os
import re
import signal
import time

import pytest

from tests.distributed.launch import PROGRAMS, horovodrun, is_running, mpiexec, python, wait_for

pytestmark = pytest.mark.distributed

TIMEOUT = 4
RANK = r"^  rank {} \(pid \d+ on \S+\) "


def line(run, rank):
    """Return the only line that reports a rank."""
    said = re.findall(RANK.format(rank) + "(.*)$", "\n".join(one.output for one in run.ranks), re.MULTILINE)
    assert len(said) == 1, run.describe()
    return said[0]


def ends_of(folder, size):
    """Return the time at which each rank ends; called while they run."""
    files = [folder / f"{rank}.pid" for rank in range(size)]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files), what="the ranks' start")
    pids, ends = [int(file.read_text()) for file in files], {}

    def all_ended():
        for pid in pids:
            if pid not in ends and not is_running(pid):
                ends[pid] = time.time()
        return len(ends) == size

    wait_for(all_ended, seconds=100, what="the end of all ranks")
    return list(ends.values())


def stalled(how, size, engine, *arguments, **options):
    """Return a run that stalls, and the seconds from the last common step to the end of all ranks."""
    ends = []
    run = horovodrun(
        "stalled_training.py",
        how,
        *arguments,
        engine=engine,
        world=size,
        check=False,
        during=lambda folder: ends.extend(ends_of(folder, size)),
        **options,
    )
    assert run.returncode == 1, run.describe()
    assert run.leftovers == 0
    assert "went on" not in "".join(rank.output for rank in run.ranks)
    trained = [float(re.search(r"^at (\S+) trained", rank.output, re.MULTILINE)[1]) for rank in run.ranks]
    return run, max(ends) - max(trained)


def test_a_rank_that_skips_a_lookup_is_reported_with_both_collectives():
    # The environment overrides the program.
    run, seconds = stalled("skip", 2, "mpi", "3600", env={"XMC_TF_STALL_TIMEOUT": str(TIMEOUT)})
    assert seconds < TIMEOUT + 15
    assert_both_ways(line(run, 0), line(run, 1))
    assert f"failed: aborted after {TIMEOUT} s without progress (--stall-timeout)\n" in run.ranks[0].output


def assert_both_ways(waits, leaves_out):
    place = r"; stalled_training\.py:\d+ in <module>: step\("
    assert re.search(rf"^waits in .*the ids of a lookup in table 'items' \(items/ids\) for {TIMEOUT} s.*{place}", waits)
    sums = r"waits in the sum of the replicated variables' gradients \(xmc_tf/gradients/float32\) for \d+ s"
    assert re.match(sums + place, leaves_out)


def test_stopped_and_sleeping_ranks_are_distinguished():
    run, seconds = stalled("away", 3, "gloo", str(TIMEOUT))
    assert seconds < TIMEOUT + 20
    assert f"stall: rank 0 has waited {TIMEOUT} s for rank 1, 2, which are elsewhere\n" in run.ranks[0].output
    assert line(run, 0).startswith("waits in ")
    assert line(run, 1) == "is stopped, by a signal or a debugger"
    assert re.match(r"is in no collective; stalled_training\.py:\d+ in turn_aside: time\.sleep\(600\)", line(run, 2))


def launched(controller, size, *arguments):
    """Return the lines of rank 0, which ``xmc_tf.launch`` quotes as the cause."""
    options = ["--np", str(size), "--controller", controller, "--stall-timeout", str(TIMEOUT)]
    run = python("module:xmc_tf.launch", *options, *arguments, timeout=90, check=False)
    assert run.returncode == 1, run.describe()
    assert run.leftovers == 0
    said = run.ranks[0].output
    end = said[said.rindex("\nfailed: rank ") :]
    assert re.search(r"failed: rank 0 \(pid \d+ on \S+\) ended with exit status 1\. The others were stopped", end)
    assert f"    stall: rank 0 has waited {TIMEOUT} s for rank 1, which is elsewhere\n" in end
    return dict(re.findall(r"^      rank (\d) \(pid \d+ on \S+\) (.*)$", end, re.MULTILINE))


def test_the_launcher_ends_a_stall_over_gloo_and_quotes_it():
    said = launched("gloo", 2, str(PROGRAMS / "stalled_training.py"), "skip")
    assert_both_ways(said["0"], said["1"])


def test_the_launcher_ends_a_stall_over_mpi_without_tensorflow_while_the_watches_are_attacked():
    said = launched("mpi", 3, str(PROGRAMS / "stalled.py"), "attacked")
    assert re.match(
        r"waits in a method of the communicator .* for \d+ s; stalled\.py:\d+ in <module>: world\.all", said["0"]
    )
    assert re.match(r"is in no collective; stalled\.py:\d+ in <module>: time\.sleep", said["1"])
    assert said["2"].startswith("waits in a method of the communicator")


def test_without_a_timeout_a_stall_is_only_logged():
    def let_go(folder):
        wait_for(lambda: (folder / "0.out").exists() and "stall: " in (folder / "0.out").read_text(), seconds=60)
        os.kill(int((folder / "1.pid").read_text()), signal.SIGCONT)

    run = mpiexec("stalled_warning.py", during=let_go)
    assert "stall: rank 0 has waited 2 s for rank 1, which is elsewhere\n" in run.ranks[0].output
    assert [rank.result for rank in run.ranks] == [[0, 1]] * 2
