"""``-m``: folders that are accepted, files that are kept in them, and the lock against a second training."""

import subprocess
import sys

import pytest

from tests.linear.command_data import run_train, shell
from tests.refusals import refused
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.rankers import XLinear
from xmc_tf.store.publishing import folder_lock


@pytest.fixture
def data(corpus):
    """-x and -y."""
    return ["-x", corpus / "X.npz", "-y", corpus / "Y.npz"]


def test_a_log_that_is_written_into_the_folder_before_and_during_training_stays(data, tmp_path):
    """PECOS's script creates the folder first, and writes the training's log into it with ``tee``."""
    model = tmp_path / "model"
    model.mkdir()
    train = [sys.executable, "-m", "xmc_tf.linear.train", *map(str, data), "-m", str(model), "--verbose-level", "3"]
    for count in (1, 2):
        with subprocess.Popen(["tee", "-a", str(model / "train.log")], stdin=subprocess.PIPE) as tee:
            subprocess.run(train, stderr=tee.stdin, check=True, timeout=120)
            tee.stdin.write(b"ended\n")
        assert (model / "train.log").read_text().count("ended\n") == count
        assert XRLinear.load(model).ranker.nr_labels == 12
        (model / "Pt.npz").write_bytes(b"predictions")
    assert (model / "Pt.npz").read_bytes() == b"predictions"
    assert not [path.name for path in tmp_path.iterdir() if path.name != "model"]


def test_another_shape_of_model_leaves_no_parts_of_the_older_one(data, corpus, tmp_path):
    run_train(*data, "-m", tmp_path / "m", "--labels", corpus / "labels.txt", "--max-leaf-size", 2, "--nr-splits", 2)
    deep = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    run_train(*data, "-m", tmp_path / "m", "--max-leaf-size", 12)
    flat = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    assert flat < deep
    assert not (tmp_path / "m" / "labels.txt").exists()


def test_rankers_of_pecos_are_never_replaced(model, data, tmp_path):
    XLinear.load(model / "ranker").save(tmp_path / "theirs")
    before = (tmp_path / "theirs" / "param.json").read_bytes()
    refused(r"param\.json", run_train, *data, "-m", tmp_path / "theirs")
    assert (tmp_path / "theirs" / "param.json").read_bytes() == before
    assert not (tmp_path / "theirs" / "params.json").exists()


def test_a_second_training_into_the_folder_is_refused_before_it_reads_anything(tmp_path):
    with folder_lock(tmp_path / "m"):
        code, _, error = shell("train", "-x", tmp_path / "none.npz", "-y", tmp_path / "none.npz", "-m", tmp_path / "m")
    assert code == 2
    assert "m is being written by another run" in error
    assert "pid" in error
    assert "started" in error
