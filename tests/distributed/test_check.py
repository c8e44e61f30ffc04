"""Tests of ``xmc_tf.check``: places of ranks, timings, and ranks that hang."""

import re

import pytest

from tests.distributed.launch import horovodrun, mpiexec

pytestmark = [pytest.mark.distributed, pytest.mark.full]


def checked(how, *arguments, engine="gloo", world=2, **options):
    options = {"timeout": 90, "check": False} | options
    start = mpiexec if engine == "mpiexec" else horovodrun
    keywords = {} if engine == "mpiexec" else {"engine": engine}
    return start("check_trouble.py", how, "--megabytes", "0.5", *arguments, world=world, **keywords, **options)


def assert_right(report, communicator, world):
    assert report["communicator"].startswith(communicator)
    assert [place["rank"] for place in report["ranks"]] == list(range(world))
    assert len({place["pid"] for place in report["ranks"]}) == world
    assert {place["versions"]["python"] for place in report["ranks"]} == {report["ranks"][0]["versions"]["python"]}
    names = ["broadcast", "all-reduce", "all-to-all"]
    assert [(one["name"], one["right"]) for one in report["collectives"]] == [(name, True) for name in names]
    assert report["problems"] == []


def test_a_successful_check_over_gloo(tmp_path):
    run = checked("none", "--json", "--shared-workdir", str(tmp_path))
    assert run.returncode == 0, run.describe()
    report = run.ranks[0].result
    assert_right(report, "Horovod over Gloo", 2)
    assert [place["local_rank"] for place in report["ranks"]] == [0, 1]
    assert report["shared_workdir"] is True
    assert list(tmp_path.iterdir()) == []
    assert run.ranks[1].output == ""


def test_several_hosts_have_links_over_mpi_and_a_slow_one_is_named():
    """The program times each exchange as one of a certain speed, whatever the machine does beside it."""
    run = checked("slow", "--json", engine="mpiexec", world=4)
    assert run.returncode == 0, run.describe()
    report = run.ranks[0].result
    assert_right(report, "mpi4py over Open MPI", 4)
    assert len(report["links"]) == 6
    slow = re.findall(r"slow link: (host-\d – host-\d): 100 MB/s", " ".join(report["warnings"]))
    assert sorted(slow) == ["host-0 – host-1", "host-1 – host-2", "host-1 – host-3"]


def test_ranks_that_hang_and_that_are_stopped_are_named():
    run = checked("hang", "--timeout", "15", engine="mpiexec", world=3)
    assert run.returncode == 1, run.describe()
    assert run.leftovers == 0
    said = "".join(rank.output for rank in run.ranks)
    assert "stall: rank 0 has waited 15 s for rank 1, 2, which are elsewhere\n" in said
    assert re.search(
        r"^  rank 1 \(pid \d+ on host-1\) is in no collective; check_trouble.py:\d+ in hanging", said, re.MULTILINE
    )
    assert re.search(r"^  rank 2 \(pid \d+ on host-2\) does not answer", said, re.MULTILINE)
    assert "failed: aborted after 15 s without progress (--timeout)" in said


def test_ranks_say_that_another_one_does_not_start():
    run = checked("late", "--timeout", "10")
    assert run.returncode == 1, run.describe()
    assert run.leftovers == 0
    assert "Timeout (0:00:10)!" in run.ranks[0].output
    assert re.search(r'check/__main__\.py", line \d+ in main', run.ranks[0].output)


def test_a_wrong_result_and_an_unshared_folder_name_the_rank():
    run = checked("wrong", "--shared-workdir", engine="mpiexec", world=3)
    assert run.returncode == 1
    assert re.search(r"^all-reduce +WRONG", run.ranks[0].output, re.MULTILINE)
    assert "failed: all-reduce: wrong result on rank 1\n" in run.ranks[0].output
    assert re.search(r"failed: \S+ is not shared: rank 1 \(\S+\) cannot access it", run.ranks[0].output)
