"""Run the checks of tests/collective/world_*.py on 2 and 3 ranks, with each engine."""

from functools import partial

import pytest

from tests.distributed.launch import horovodrun, mpiexec

pytestmark = pytest.mark.distributed

# Module of checks -> number of its checks.
CHECKS = {"world_lookup": 8, "world_pairs": 6, "world_full_table_loss": 4, "world_several": 2}
CHECKS |= {
    "world_optimizers": 4,
    "world_growing": 2,
    "world_fit": 4,
    "world_keras": 5,
    "world_steps": 4,
    "world_whole_layers": 4,
    "world_graphs": 3,
}
EXCHANGES = ["world_lookup", "world_pairs", "world_full_table_loss"]
# Exchanges depend on the engine and on the number of ranks: they are checked with Horovod on an odd number, and with
# mpi4py on an even one; tests/collective checks them on one. What is built on them is checked once.
WORLDS = [
    pytest.param("mpi", 2, [*EXCHANGES, "world_steps", "world_optimizers", "world_keras", "world_graphs"], id="mpi-2"),
    pytest.param("mpi", 2, ["world_several", "world_growing"], id="mpi-2-more", marks=pytest.mark.full),
    pytest.param("gloo", 3, ["world_steps"], id="gloo-3"),
    pytest.param("gloo", 3, [*EXCHANGES, "world_fit", "world_whole_layers"], id="gloo-3-more", marks=pytest.mark.full),
]


@pytest.mark.parametrize(("engine", "world", "modules"), WORLDS)
def test_everything_holds_in_a_world_of(engine, world, modules):
    environment = {
        # Horovod's cycle is shortened from 1 to 0.5 ms, because there are thousands of small exchanges.
        "HOROVOD_CYCLE_TIME": "0.5",
        # With this stride, cases of all sizes and shapes occur, even and odd ones, and each rank has ids in some.
        "XMC_TF_TEST_STRIDE": "7",
    }
    launch = partial(mpiexec, imported=True) if engine == "mpi" else horovodrun
    run = launch("collective_core.py", *modules, world=world, timeout=300, env=environment)
    assert [rank.result["size"] for rank in run.ranks] == [world] * world
    assert all(len(rank.result["passed"]) == sum(map(CHECKS.get, modules)) for rank in run.ranks)
