"""Run the checks of tests/collective/world_*.py on 1 to 4 ranks, over Gloo and MPI."""

import pytest

from tests.distributed.launch import horovodrun

pytestmark = pytest.mark.distributed

# What depends on the transport and on the number of ranks, everywhere. fit() makes the same calls: two worlds suffice.
CHECKS = {"world_lookup": 10, "world_pairs": 6, "world_every_row": 3, "world_optimizers": 5, "world_fit": 4}
CALLS = ["world_lookup", "world_pairs", "world_every_row", "world_optimizers"]
WITH_FIT = [("gloo", 2), ("gloo", 3)]


# Over Gloo one rank, an even and an odd number; over MPI, whose messages take other paths, the least and the most.
@pytest.mark.parametrize(("engine", "world"), [("gloo", 1), ("gloo", 2), ("gloo", 3), ("mpi", 2), ("mpi", 4)])
def test_everything_holds_in_a_world_of(engine, world):
    environment = {
        # Horovod's cycle is shortened from 1 to 0.5 ms, because there are thousands of small exchanges.
        "HOROVOD_CYCLE_TIME": "0.5",
        # An odd stride, so that even and odd cases still occur.
        "XMC_TF_TEST_STRIDE": "1" if (engine, world) == ("gloo", 2) else "5",
    }
    modules = [*CALLS, *(["world_fit"] if (engine, world) in WITH_FIT else [])]
    run = horovodrun("collective_core.py", *modules, engine=engine, world=world, timeout=300, env=environment)
    assert [rank.result["size"] for rank in run.ranks] == [world] * world
    assert all(len(rank.result["passed"]) == sum(map(CHECKS.get, modules)) for rank in run.ranks)
