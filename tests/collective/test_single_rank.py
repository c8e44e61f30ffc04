"""Run the checks of the ``world_*.py`` modules on a single rank; tests/distributed runs them on several."""

import sys

import pytest

from tests.collective import world_every_row, world_fit, world_lookup, world_optimizers, world_pairs
from xmc_tf.ranks.solo import Solo

CHECKS = [
    pytest.param(check, id=name)
    for module in (world_lookup, world_pairs, world_every_row, world_optimizers, world_fit)
    for name, check in sorted(vars(module).items())
    if name.startswith("check_")
]


@pytest.mark.parametrize("check", CHECKS)
def test_single_rank(check, monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod", None)  # an import of it would fail
    check(Solo())
