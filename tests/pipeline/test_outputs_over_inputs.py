"""The command lines of XTransformers and exports refuse outputs that are inputs or parts of models, before any work."""

import json

import pytest

from tests.files import contents
from tests.refusals import refused
from xmc_tf import encode, export, predict, preprocess, train


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Files that nobody could work with: they are not read."""
    monkeypatch.chdir(tmp_path)
    files = ("X.txt", "X.npz", "Y.npz", "m/head/manifest.json", "m/tree/C0.npz", "exp/encoder/config.json")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "m" / "params.json").write_text(json.dumps({"format": "xmc_tf.model", "version": 1}))
    (tmp_path / "link").symlink_to("X.txt")
    return tmp_path


TRAIN = ["-t", "X.txt", "-y", "Y.npz", "-m"]
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
]


@pytest.mark.parametrize(("command", "flags", "words"), REFUSED)
def test_refused(place, command, flags, words):
    before = contents(place)
    refused([words], command.main, flags)
    assert contents(place) == before
