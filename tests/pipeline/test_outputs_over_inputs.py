"""Command lines refuse outputs that are inputs or parts of models, before they read anything, and change no file."""

import json
from importlib import import_module

import pytest

from tests.files import contents
from tests.refusals import refused
from xmc_tf import encode, export, predict, preprocess, train
from xmc_tf.linear import predict as linear_predict
from xmc_tf.linear import train as linear_train
from xmc_tf.tree import show

evaluate = import_module("xmc_tf.evaluate")  # xmc_tf.evaluate is the public function


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Files that nobody could work with: they are not read."""
    monkeypatch.chdir(tmp_path)
    files = ("X.txt", "X.npz", "Y.npz", "m/head/manifest.json", "m/tree/C0.npz", "m/labels.txt", "exp/params.json")
    files += ("m/ranker/ranker/0.model/W.npz", "exp/encoder/config.json")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "m" / "params.json").write_text(json.dumps({"format": "xmc_tf.model", "version": 1}))
    (tmp_path / "link").symlink_to("X.txt")
    (tmp_path / "hard.npz").hardlink_to("X.npz")
    return tmp_path


TRAIN = ["-t", "X.txt", "-y", "Y.npz", "-m"]
LINEAR = ["-x", "X.npz", "-y", "Y.npz", "-m"]
PREDICT = ["-m", "m", "-x", "X.npz", "-o"]
EVALUATE = ["-y", "Y.npz", "-p", "Y.npz", "--report"]
W = "m/ranker/ranker/0.model/W.npz"
REFUSED = [
    (predict, ["-m", "m", "-t", "X.txt", "-o", "link"], "-o link is also the input -t X.txt"),
    (predict, ["-m", "m", "-q", "a", "-x", "X.npz", "-o", "X.npz"], "-o X.npz is also the input -x X.npz"),
    (predict, ["-m", "m", "-q", "a", "-o", "m/head/P.npz"], "is part of the model in"),
    (encode, ["-m", "m", "-t", "X.txt", "-o", "link"], "-o link is also the input -t X.txt"),
    (encode, ["-m", "m", "-t", "X.txt", "--save-emb-folder", "m/encoder"], "is part of the model in"),
    (export, ["-m", "m", "-o", "m/1"], "-o m/1 lies inside the model in"),
    (preprocess, ["build", "-i", "X.txt", "-m", "m/features"], "-m m/features is part of the model in"),
    (preprocess, ["run", "-p", "m/features", "-i", "X.txt", "-x", "link"], "-x link is also the input -i X.txt"),
    (train, [*TRAIN, "X.txt"], "-m X.txt is also the input -t X.txt"),
    (train, [*TRAIN, "m/new"], "-m m/new lies inside the model in"),
    (train, [*TRAIN, "exp", "--model-shortcut", "exp/encoder"], "would replace exp/encoder, which is the input"),
    (train, [*TRAIN, "m", "--code-path", "m/tree"], "would replace m/tree, which is the input --code-path"),
    (train, [*TRAIN, "new", "--work-dir", "."], "holds X.txt, which is the input -t"),
    (train, [*TRAIN, "new", "--work-dir", "m/head"], "--work-dir m/head is part of the model in"),
    (train, [*TRAIN, "new", "--save-emb-dir", "m/tree"], "--save-emb-dir m/tree is part of the model in"),
    (linear_predict, [*PREDICT, "X.npz"], "-o X.npz is also the input -x X.npz"),
    (linear_predict, [*PREDICT, "hard.npz"], "-o hard.npz is also the input -x X.npz"),
    (linear_predict, [*PREDICT, "Y.npz", "-y", "Y.npz"], "-o Y.npz is also the input -y Y.npz"),
    (linear_predict, [*PREDICT, W], f"-o {W} is also the input -m m"),
    (show, ["m", "--dot", "m/params.json"], "--dot m/params.json is also the input MODEL m"),
    (show, ["m/tree", "--dot", "m/labels.txt"], "is part of the model in"),
    (evaluate, [*EVALUATE, "m/tree"], "--report m/tree is part of the model in"),
    (evaluate, [*EVALUATE, "Y.npz"], "--report Y.npz is also the input -y Y.npz"),
    (linear_train, [*LINEAR, "X.npz"], "-m X.npz is also the input -x X.npz"),
    (linear_train, [*LINEAR, "exp", "--params-path", "exp/params.json"], "would replace exp/params.json, which is the"),
    (linear_train, [*LINEAR, "m", "-f", "m/tree/C0.npz"], "-m m would replace m/tree/C0.npz, which is the"),
    (linear_train, [*LINEAR, "m/new"], "-m m/new lies inside the model in"),
]


@pytest.mark.parametrize(("command", "flags", "words"), REFUSED)
def test_refused(place, command, flags, words):
    before = contents(place)
    refused([words, "\n  fix: "], command.main, flags)
    assert contents(place) == before
