"""Run the checks of the ``world_*.py`` modules on a single rank; tests/distributed runs them on several."""

import sys

import pytest

from tests.collective import (
    world_fit,
    world_full_table_loss,
    world_graphs,
    world_growing,
    world_lookup,
    world_optimizers,
    world_pairs,
    world_whole_layers,
)
from xmc_tf.ranks.solo import Solo

MODULES = (
    world_lookup, world_pairs, world_full_table_loss, world_optimizers, world_fit, world_whole_layers, world_graphs,
    world_growing,
)  # fmt: skip
CHECKS = [
    pytest.param(check, id=name)
    for module in MODULES
    for name, check in sorted(vars(module).items())
    if name.startswith("check_")
]


@pytest.mark.parametrize("check", CHECKS)
def test_single_rank(check, monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod", None)  # an import of it would fail
    check(Solo())
