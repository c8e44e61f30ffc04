"""Tests of the engines: Horovod over Gloo and over MPI, and mpi4py alone."""

import pytest

from tests.distributed.launch import horovodrun, mpiexec

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("engine", ["gloo", "mpi"])
def test_horovods_collectives_are_right(engine):
    run = horovodrun("horovod_collectives.py", engine, engine=engine, world=2)
    # Under MPI, mpi4py has the same ranks as Horovod; under Gloo, there is no MPI.
    mpi_world = 2 if engine == "mpi" else -1
    assert [rank.result for rank in run.ranks] == [
        {"rank": rank, "size": 2, "mpi_world": mpi_world} for rank in range(2)
    ]
    assert run.leftovers == 0


def test_mpi_collectives_are_right_without_tensorflow():
    run = mpiexec("mpi_collectives.py", world=2)
    assert [rank.result for rank in run.ranks] == [
        {"rank": 0, "size": 2, "received": [0, 100, 101, 102]},
        {"rank": 1, "size": 2, "received": [10, 11, 110, 111, 112, 113]},
    ]
    assert run.leftovers == 0
