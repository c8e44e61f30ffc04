"""Tests of ``xmc_tf.launch``: cores, output, and failing ranks."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.distributed.launch import ENVIRONMENT, PROGRAMS, REPOSITORY, is_running, python, wait_for

pytestmark = pytest.mark.distributed

PROGRAM = str(PROGRAMS / "launched.py")


def gloo(*values):
    """Return a row of a table that only make test-all runs."""
    return pytest.param("gloo", *values, marks=pytest.mark.full)


def launched(*arguments, controller="mpi", **options):
    """Run two ranks, by default with the controller that starts faster."""
    options = {"timeout": 90, "check": False} | options
    flags = ["--np", "2", "--controller", controller, "--timeout", "300"]
    return python("module:xmc_tf.launch", *flags, *arguments, **options)


def waiting_pids(folder, size=2):
    """Return the ranks' process ids once all of them wait."""
    found = []

    def all_wait():
        output = folder / "0.out"
        text = output.read_text() if output.exists() else ""
        found[:] = [(int(rank), int(pid)) for rank, pid in re.findall(r"\[(\d+)\] pid (\d+) waits", text)]
        return len(found) == size

    wait_for(all_wait, what="the ranks' start")
    return dict(found)


def test_any_program_runs_as_under_horovodrun():
    run = launched("echo", "-m", "hello")
    assert run.returncode == 0, run.describe()
    assert sorted(re.findall(r"\[\d\] .*hello", run.ranks[0].output)) == ["[0] -m hello", "[1] -m hello"]


@pytest.mark.parametrize("controller", [gloo(), "mpi"])
def test_each_rank_has_its_cores_threads_and_arguments_and_prefixed_lines(controller):
    environment = {k: v for k, v in (os.environ | ENVIRONMENT).items() if "NUM_" not in k or "THREADS" not in k}
    command = [sys.executable, "-m", "xmc_tf.launch", "--np", "2", "--controller", controller, PROGRAM, "place"]
    run = subprocess.run(
        [*command, "-m", "--np", "two words"], env=environment, cwd=REPOSITORY, capture_output=True, timeout=360
    )
    out, err = run.stdout.decode(), run.stderr.decode()
    assert run.returncode == 0, err
    places = {}
    for rank, text in re.findall(r"^\[(\d)\] (\{.*\})$", out, re.MULTILINE):
        places[int(rank)] = json.loads(text)
        assert places[int(rank)]["rank"] == int(rank)
    assert set(places) == {0, 1}
    available = os.sched_getaffinity(0)
    assert set(places[0]["cores"]) | set(places[1]["cores"]) == available
    if len(available) > 1:
        assert not set(places[0]["cores"]) & set(places[1]["cores"])
    for place in places.values():
        assert place["threads"] == [str(len(place["cores"]) if len(available) > 1 else 1)]
    for rank in range(2):
        assert f"[{rank}] to the errors ['-m', '--np', 'two words']" in err
        assert f"[{rank}] no end, \ufffd no UTF-8" in out
        assert not is_running(places[rank]["left"])
    assert len(out.splitlines()) == 4


@pytest.mark.parametrize(("controller", "how", "status"), [("mpi", "raise", 1), gloo("exit", 7)])
def test_a_failing_rank_stops_its_siblings_and_is_quoted(controller, how, status):
    run = launched(PROGRAM, how, controller=controller)
    assert run.returncode == status, run.describe()
    assert run.leftovers == 0
    said = run.ranks[0].output
    end = said[said.rindex("\nfailed: ") :]
    assert re.search(rf"failed: rank 1 \(pid \d+ on \S+\) ended with exit status {status}", end)
    if how == "raise":
        assert end.count("    line ") < 10  # only its last lines
        assert "    line 99\n" in end
        assert "    RuntimeError: rank 1 has had enough" in end
        assert said.count("RuntimeError: rank 1 has had enough") == 2
    else:
        assert "The others were stopped. It had no output" in end


@pytest.mark.parametrize(("controller", "how"), [("mpi", "wait"), gloo("deaf")])
def test_sigkill_stops_the_others_and_names_the_rank(controller, how):
    pids = {}

    def kill_rank_1(folder):
        pids.update(waiting_pids(folder))
        os.kill(pids[1], signal.SIGKILL)
        wait_for(lambda: not is_running(pids[0]), seconds=30, what="the end of rank 0")

    run = launched(PROGRAM, how, controller=controller, during=kill_rank_1)
    assert run.returncode == 128 + 9, run.describe()
    assert f"failed: rank 1 (pid {pids[1]} on " in run.ranks[0].output
    assert "was ended by signal 9 (SIGKILL); if nobody killed it, its host was out of memory" in run.ranks[0].output
    assert run.leftovers == 0


@pytest.mark.parametrize(
    ("controller", "number", "status"),
    [gloo(signal.SIGKILL, -9), ("mpi", signal.SIGINT, 130)],
)
def test_stopping_the_launcher_stops_the_ranks(controller, number, status):
    def stop(folder):
        pids = waiting_pids(folder)
        os.kill(int((folder / "0.pid").read_text()), number)
        wait_for(lambda: not any(map(is_running, pids.values())), seconds=20, what="the end of all ranks")

    run = launched(PROGRAM, "wait", controller=controller, during=stop)
    assert run.returncode == status, run.describe()
    assert "Traceback" not in run.ranks[0].output
    assert run.leftovers == 0
