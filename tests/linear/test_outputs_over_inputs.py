"""Command lines refuse outputs that are inputs or parts of models, before any work, and change no file."""

import os
import shutil
from importlib import import_module

import pytest

from tests.files import contents
from tests.linear.command_data import write_corpus
from tests.linear.test_bad_input import message
from xmc_tf.linear import predict, train
from xmc_tf.tree import show

evaluate = import_module("xmc_tf.evaluate")  # xmc_tf.evaluate is the public function


@pytest.fixture(scope="module")
def place(model, tmp_path_factory):
    """A corpus and a model in a folder of their own."""
    folder = tmp_path_factory.mktemp("place")
    write_corpus(folder)
    shutil.copytree(model, folder / "m")
    os.symlink(folder / "X.npz", folder / "soft.npz")
    os.link(folder / "X.npz", folder / "hard.npz")
    (folder / "exp").mkdir()
    (folder / "exp" / "params.json").write_text("{}")
    return folder


PREDICT = ["-m", "m", "-x", "X.npz", "-o"]
TRAIN = ["-y", "Y.npz", "-m"]
W = "m/ranker/ranker/0.model/W.npz"
REFUSED = {
    "the features": (predict, [*PREDICT, "X.npz"], "-o X.npz is also the input -x X.npz"),
    "the features by a link": (predict, [*PREDICT, "soft.npz"], "-o soft.npz is also the input -x X.npz"),
    "the features by a hard link": (predict, [*PREDICT, "hard.npz"], "-o hard.npz is also the input -x X.npz"),
    "the labels": (predict, [*PREDICT, "Y.npz", "-y", "Y.npz"], "-o Y.npz is also the input -y Y.npz"),
    "weights": (predict, [*PREDICT, W], f"-o {W} is also the input -m m"),
    "a drawing over metadata": (show, ["m", "--dot", "m/params.json"], "--dot m/params.json is also the input MODEL m"),
    "a drawing over names": (show, ["m/tree", "--dot", "m/labels.txt"], "is part of the model in"),
    "a report among parts": (
        evaluate, ["-y", "Y.npz", "-p", "Y.npz", "--report", "m/tree"], "--report m/tree is part of the model in"
    ),
    "a report over an input": (
        evaluate, ["-y", "Y.npz", "-p", "Y.npz", "--report", "Y.npz"], "--report Y.npz is also the input -y Y.npz"
    ),
    "a model over features": (train, ["-x", "X.npz", *TRAIN, "X.npz"], "-m X.npz is also the input -x X.npz"),
    "a model over its parameters": (
        train, ["-x", "X.npz", *TRAIN, "exp", "--params-path", "exp/params.json"],
        "-m exp would replace exp/params.json, which is the input --params-path",
    ),
    "a model over label features": (
        train, ["-x", "X.npz", *TRAIN, "m", "-f", "m/tree/C0.npz"], "-m m would replace m/tree/C0.npz, which is the"
    ),
    "a model in a model": (train, ["-x", "X.npz", *TRAIN, "m/new"], "-m m/new lies inside the model in"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(REFUSED))
def test_refused(place, case, capsys, monkeypatch):
    monkeypatch.chdir(place)
    command, flags, words = REFUSED[case]
    before = contents(place)
    said = message(capsys, command.main, *flags)
    assert words in said
    assert "\n  fix: " in said
    assert contents(place) == before


def test_before_anything_is_read(place, monkeypatch, capsys):
    """Outputs are checked even before a damaged model is noticed."""
    monkeypatch.chdir(place)
    shutil.copytree("m", "damaged")
    (place / "damaged" / "ranker" / "ranker" / "0.model" / "W.npz").write_bytes(b"x")
    said = message(capsys, predict.main, "-m", "damaged", "-x", "X.npz", "-o", "X.npz")
    assert "is also the input -x" in said
    shutil.rmtree("damaged")


def test_predictions_beside_the_parts_of_a_model_are_written_as_pecos_scripts_do(place, monkeypatch):
    monkeypatch.chdir(place)
    predict.main([*PREDICT, "m/Pt.npz"])
    predict.main([*PREDICT, "m/Pt.npz"])  # again, over the older ones
    evaluate.main(["-y", "Y.npz", "-p", "m/Pt.npz", "--report", "m/report"])
    show.main(["m", "--dot", "m/tree.dot"])
    assert {"Pt.npz", "report", "tree.dot"} <= {path.name for path in (place / "m").iterdir()}
    predict.main([*PREDICT, "m/Pt.npz"])  # and the model is as it was
