"""A training with ``--min-np`` goes on without a host that is lost, on hosts of which none was lost before."""

import pytest

from tests.distributed.launch import PROGRAMS, wait_for
from tests.distributed.on_hosts import (
    LAUNCH,
    assert_none_left,
    await_line,
    finish,
    rankers,
    start,
)
from tests.files import contents

pytestmark = pytest.mark.distributed


def test_with_min_np_a_training_survives_the_loss_of_a_host(hosts, features, one_process, tmp_path):
    hold = tmp_path / "hold"
    options = ["--controller", "mpi", "--timeout", 30, "--min-np", 2]
    program = [PROGRAMS / "linear_training.py", "0.1", *rankers(features, tmp_path / "model")[2:]]
    command = [*LAUNCH, "--hosts", hosts.folder / "hosts.json", *options, *program]
    process = start(hosts, "one", "env", f"XMC_TF_TEST_HOLD={hold}", *command)
    blocks = tmp_path / "model.work" / "blocks"
    wait_for(lambda: len(list(blocks.glob("*.columns"))) >= 1, 60, "a solved sub-problem")
    hold.touch()  # the training goes on without the host
    with hosts.cut_off("three"):
        await_line(process, r"^restarting on 3 ranks \(one:2,two:1\)$")
        hold.unlink()
        status, said = finish(process)
    assert status == 0, said
    assert contents(tmp_path / "model") == one_process
    assert_none_left(hosts)
