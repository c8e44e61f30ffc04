"""Tests of the engines' operations: Horovod over Gloo and over MPI, and mpi4py. A process uses one of them only."""

from functools import partial

import pytest

from tests.distributed.launch import horovodrun, mpiexec

pytestmark = pytest.mark.distributed
fast_mpiexec = partial(mpiexec, imported=True)


@pytest.mark.parametrize(
    ("launch", "environment", "name", "package"),
    [
        (horovodrun, {}, "Horovod over Gloo", "horovod"),
        pytest.param(
            fast_mpiexec, {"XMC_TF_COMMUNICATOR": "horovod"}, "Horovod over MPI", "horovod", marks=pytest.mark.full
        ),
        (fast_mpiexec, {}, "mpi4py over Open MPI", "mpi4py"),
    ],
)
def test_the_operations_of(launch, environment, name, package):
    run = launch("engine_operations.py", world=3, env=environment)
    assert [rank.result["rank"] for rank in run.ranks] == [0, 1, 2]
    assert all(rank.result["engine"].startswith(name) for rank in run.ranks)
    assert all(rank.result["packages"] == [package] for rank in run.ranks)
    assert f"rank 0 of 3: {name}" in run.ranks[0].output
    assert run.leftovers == 0
