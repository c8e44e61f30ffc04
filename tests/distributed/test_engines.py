"""Both engines work from the first day: Horovod over Gloo and over MPI, and mpi4py alone."""

import pytest

from tests.distributed.launch import horovodrun, mpiexec

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("engine", ["gloo", "mpi"])
def test_horovod_moves_the_right_numbers(engine):
    run = horovodrun("horovod_collectives.py", engine, engine=engine, world=2)
    # Under MPI the world of mpi4py is Horovod's; under Gloo there is no MPI to ask.
    mpi_world = 2 if engine == "mpi" else -1
    assert [rank.result for rank in run.ranks] == [
        {"rank": rank, "size": 2, "mpi_world": mpi_world} for rank in range(2)
    ]
    assert run.leftovers == 0


def test_mpi_moves_the_right_numbers_without_tensorflow():
    run = mpiexec("mpi_collectives.py", world=2)
    assert [rank.result for rank in run.ranks] == [
        {"rank": 0, "size": 2, "received": [0, 100, 101, 102]},
        {"rank": 1, "size": 2, "received": [10, 11, 110, 111, 112, 113]},
    ]
    assert run.leftovers == 0
