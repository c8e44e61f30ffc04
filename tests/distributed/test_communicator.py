"""Tests of the communicator and of the engines' operations: over Gloo, over MPI with and without Horovod, and alone."""

import pytest

from tests.distributed.launch import horovodrun, mpiexec, python

pytestmark = pytest.mark.distributed


def check(run, size, kind, tensorflow):
    assert [rank.result for rank in run.ranks] == [
        {"rank": rank, "size": size, "kind": kind, "tensorflow": tensorflow} for rank in range(size)
    ]
    assert run.leftovers == 0
    # Rank 0 of several ranks logs the communicator and the reason; a single process logs nothing.
    assert (f"rank 0 of {size}: " in run.ranks[0].output) == (kind != "Solo")
    assert all("xmc_tf.collective" not in rank.output for rank in run.ranks[1:])


@pytest.mark.full
def test_horovod_over_gloo():
    run = horovodrun("communicator_calls.py", world=3, engine="gloo")
    check(run, 3, "HorovodCommunicator", tensorflow=True)
    assert "Horovod over Gloo (HOROVOD_RANK=0" in run.ranks[0].output


def test_mpi_without_tensorflow():
    run = mpiexec("communicator_calls.py", world=4)
    check(run, 4, "MpiCommunicator", tensorflow=False)
    assert "mpi4py over Open MPI" in run.ranks[0].output


@pytest.mark.full
def test_under_horovods_launcher_with_mpi_no_tensorflow_is_needed():
    check(horovodrun("communicator_calls.py", engine="mpi", cold=True), 2, "MpiCommunicator", tensorflow=False)


@pytest.mark.full
def test_under_horovods_launcher_with_mpi_gpus_use_horovod(tmp_path):
    run = horovodrun("engine_operations.py", "gpus", str(tmp_path), engine="mpi", cold=True, timeout=240)
    assert [rank.result["engine"] for rank in run.ranks] == ["Horovod over MPI and NCCL"] * 2
    assert "by horovodrun; all ranks have GPUs, and Horovod has NCCL" in run.ranks[0].output
    assert run.leftovers == 0


def test_alone():
    run = python("communicator_calls.py")
    check(run, 1, "Solo", tensorflow=False)
    assert "a single process" not in run.ranks[0].output  # the usual case is not logged
    check(mpiexec("communicator_calls.py", world=1), 1, "Solo", tensorflow=False)


@pytest.mark.parametrize("launcher", ["mpiexec", pytest.param("gloo", marks=pytest.mark.full)])
def test_an_error_on_one_rank_ends_all(launcher):
    def start(how):
        options = {"timeout": 60, "check": False}
        if launcher == "mpiexec":
            return mpiexec("trouble.py", how, **options)
        return horovodrun("trouble.py", how, engine=launcher, **options)

    if launcher == "mpiexec":  # under horovodrun, test_launcher.py raises an error
        raised = start("raise")
        assert raised.returncode == 1, raised.describe()
        assert "RuntimeError: rank 1 has had enough" in raised.ranks[1].output
        assert raised.leftovers == 0
    given = start("input")
    # Horovod's launcher exits with 1, whatever the status of its ranks.
    assert given.returncode == (2 if launcher == "mpiexec" else 1), given.describe()
    assert "error: rank 1 was given nonsense" in given.ranks[1].output
    assert "Traceback" not in given.ranks[1].output
    assert given.leftovers == 0


@pytest.mark.parametrize(
    ("launch", "environment", "name", "package"),
    [
        (horovodrun, {}, "Horovod over Gloo", "horovod"),
        pytest.param(
            mpiexec, {"XMC_TF_COMMUNICATOR": "horovod"}, "Horovod over MPI", "horovod", marks=pytest.mark.full
        ),
        (mpiexec, {}, "mpi4py over Open MPI", "mpi4py"),
    ],
)
def test_the_operations_of_an_engine(launch, environment, name, package):
    """A process uses one engine only."""
    options = {"imported": True} if launch is mpiexec else {}
    run = launch("engine_operations.py", world=3, env=environment, **options)
    assert [rank.result["rank"] for rank in run.ranks] == [0, 1, 2]
    assert all(rank.result["engine"].startswith(name) for rank in run.ranks)
    assert all(rank.result["packages"] == [package] for rank in run.ranks)
    assert f"rank 0 of 3: {name}" in run.ranks[0].output
    assert run.leftovers == 0
