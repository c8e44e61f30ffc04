"""Tests that ``python -m xmc_tf COMMAND`` over ranks equals ``python -m xmc_tf.<module>``: results, status, signals."""

import json
import os
import re
import signal

import pytest

from tests.distributed.launch import PROGRAMS, is_running, mpiexec, python, wait_for
from tests.linear.command_data import write_corpus

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def flags(corpus, model, labels="Y.npz"):
    return ["-x", str(corpus / "X.npz"), "-y", str(corpus / labels), "-m", str(model)]


def test_ranks_train_the_same_model(corpus, tmp_path):
    mpiexec("module:xmc_tf", "linear", "train", *flags(corpus, tmp_path / "one"))
    mpiexec("module:xmc_tf.linear.train", *flags(corpus, tmp_path / "other"))
    one, other = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "one", tmp_path / "other")
    )
    assert one == other
    assert json.loads((tmp_path / "one" / "params.json").read_text())["nr_labels"] == 12


def test_an_error_on_ranks_has_the_exit_status_of_the_command(corpus, tmp_path):
    run = mpiexec("module:xmc_tf", "linear", "train", *flags(corpus, tmp_path / "m", "missing.npz"), check=False)
    assert run.returncode == 2, run.describe()
    # The rank that reports it first ends the others.
    assert any("missing.npz does not exist" in rank.output for rank in run.ranks)


def test_ranks_end_with_the_launch_command():
    pids = []

    def stop(folder):
        def all_wait():
            output = folder / "0.out"
            text = output.read_text() if output.exists() else ""
            pids[:] = [int(pid) for pid in re.findall(r"\[\d+\] pid (\d+) waits", text)]
            return len(pids) == 2

        wait_for(all_wait, what="the ranks' start")
        os.kill(int((folder / "0.pid").read_text()), signal.SIGTERM)
        wait_for(lambda: not any(map(is_running, pids)), seconds=30, what="the end of all ranks")

    command = ["launch", "--np", "2", str(PROGRAMS / "launched.py"), "wait"]
    run = python("module:xmc_tf", *command, during=stop, check=False, timeout=90)
    assert run.returncode == 143, run.describe()
    assert run.leftovers == 0, run.describe()
