"""Tests that ``python -m xmc_tf COMMAND`` over ranks equals ``python -m xmc_tf.<module>``: results and status."""

import pytest

from tests.distributed.launch import mpiexec
from tests.distributed.on_hosts import rankers
from tests.files import contents

pytestmark = pytest.mark.distributed


def test_ranks_train_the_model_of_the_module(features, one_process, tmp_path):
    mpiexec("module:xmc_tf", "linear", "train", *map(str, rankers(features, tmp_path / "model")[2:]))
    assert contents(tmp_path / "model") == one_process


def test_an_error_on_ranks_has_the_exit_status_of_the_command(features, tmp_path):
    flags = ["-x", features / "X.npz", "-y", features / "missing.npz", "-m", tmp_path / "m"]
    run = mpiexec("module:xmc_tf", "linear", "train", *map(str, flags), check=False)
    assert run.returncode == 2, run.describe()
    # The rank that reports it first ends the others.
    assert any("missing.npz does not exist" in rank.output for rank in run.ranks)
