"""A flipped byte in any file of a model raises an error, or changes no prediction."""

import contextlib
import re
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.files import contents, flip, flipped
from tests.linear.cases import random_chain, random_model
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.data import load_features
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.rankers import XLinear


@pytest.fixture(scope="module")
def copy(model, tmp_path_factory):
    """A copy of the model of features, in which tests flip bytes and restore them."""
    folder = tmp_path_factory.mktemp("copy") / "m"
    shutil.copytree(model, folder)
    return folder


@pytest.fixture(scope="module")
def answers(copy, corpus):
    """Return the model's predictions: scores and names."""
    X = load_features([corpus / "X.npz"])

    def ask():
        model = XRLinear.load(copy)
        predicted = model.predict(X)
        return predicted.indices.tolist(), predicted.data.tolist(), model.names

    ask.right = ask()
    return ask


def test_saving_a_loaded_model_writes_the_same_files(model, tmp_path):
    XRLinear.load(model).save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(model)


@settings(max_examples=60)
@given(data=st.data())
def test_every_flipped_byte_is_noticed_or_harmless(copy, answers, data):
    before = contents(copy)
    name = data.draw(st.sampled_from(list(before)))
    size = len(before[name])
    with flipped(copy / name, data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, 255))):
        if name != "params.json":
            for load in (answers, lambda: XLinear.load(copy / "ranker"))[: 1 + name.startswith("ranker/")]:
                caught = refused(re.escape(f"{copy / name} is damaged"), load)
                assert "checksum" in caught.expected
                assert "checksum" in caught.received
                assert "copy the model again" in caught.fix
            return
        # A change of a space is harmless; of the rest a warning is given, or an error where it cannot be read.
        with contextlib.suppress(InputError):
            assert answers() == answers.right


@pytest.mark.parametrize("position", [0.3, 0.9])
def test_rankers_without_records_have_the_checksums_of_their_archives(tmp_path, position):
    """PECOS writes such rankers."""
    model = random_model(random_chain(300, [3]), 400, density=0.5)
    model.save(tmp_path / "m")
    assert XLinear.load(tmp_path / "m").nr_labels == 300
    path = tmp_path / "m" / "ranker" / "1.model" / "W.npz"
    flip(path, position)  # the lowest bit: a number like any other
    for load in (XLinear.load, XRLinear.load):
        refused(r"W\.npz, member (data|indices)\.npy is damaged(.|\n)*Bad CRC-32", load, tmp_path / "m")


def test_an_edited_params_json_is_reported_and_can_be_accepted(copy, caplog):
    path = copy / "params.json"
    before = path.read_text()
    try:
        path.write_text(before.replace('"seed": 0', '"seed": 7', 1))
        metadata = XRLinear.load(copy).metadata
        assert "params.json has changed since it was saved" in caplog.text
        assert 'delete its line "checksum" to accept' in caplog.text
        assert metadata.content["indexer_params"]["seed"] == 7
        caplog.clear()
        lines = [line for line in path.read_text().splitlines() if '"checksum"' not in line]
        path.write_text("\n".join(lines))
        XRLinear.load(copy)
        assert not caplog.records
        path.write_text(before.replace('"version": 1', '"version": 2', 1))
        refused("was not written by this version", XRLinear.load, copy)
    finally:
        path.write_text(before)
