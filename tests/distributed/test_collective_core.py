"""Sharded tables over 1 to 4 ranks and both controllers; what is checked is in tests/collective/world_*.py."""

import pytest

from tests.distributed.launch import horovodrun

pytestmark = pytest.mark.distributed

MODULES = ["world_lookup", "world_pairs", "world_training"]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("engine", ["gloo", "mpi"])
def test_everything_holds_in_a_world_of(engine, world):
    # Answers within a tenth of a millisecond rather than one: there are thousands of small exchanges.
    run = horovodrun(
        "collective_core.py", *MODULES, engine=engine, world=world, timeout=300, env={"HOROVOD_CYCLE_TIME": "0.1"}
    )
    assert [rank.result["size"] for rank in run.ranks] == [world] * world
    assert all(len(rank.result["passed"]) == 22 for rank in run.ranks)
