"""Tests that ``python -m xmc_tf COMMAND`` over ranks equals ``python -m xmc_tf.<module>``: results and status."""

import json

import pytest

from tests.distributed.launch import mpiexec
from tests.files import contents
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
    one, other = (contents(folder) for folder in (tmp_path / "one", tmp_path / "other"))
    assert one == other
    assert json.loads((tmp_path / "one" / "params.json").read_text())["nr_labels"] == 12


def test_an_error_on_ranks_has_the_exit_status_of_the_command(corpus, tmp_path):
    run = mpiexec("module:xmc_tf", "linear", "train", *flags(corpus, tmp_path / "m", "missing.npz"), check=False)
    assert run.returncode == 2, run.describe()
    # The rank that reports it first ends the others.
    assert any("missing.npz does not exist" in rank.output for rank in run.ranks)
