"""Model metadata: frozen, and complete when it is written again."""

import copy
import json
import pickle
from dataclasses import FrozenInstanceError

import pytest

from tests.linear.command_data import run_train, write_corpus
from xmc_tf.common.errors import InputError
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.xr_linear import XRLinear

CONTENT = {"model": "XTransformer", "nr_labels": 7, "train_params": {"a": [1]}, "embedding_dim": 4, "versions": {}}


def test_nothing_can_be_changed():
    content = copy.deepcopy(CONTENT)
    metadata = ModelMetadata(content)
    with pytest.raises(FrozenInstanceError):
        metadata.content = {}
    with pytest.raises(TypeError):
        metadata.content["nr_labels"] = 8
    content["train_params"]["a"].append(2)
    metadata.train_params["a"].append(3)
    metadata.to_json()["train_params"]["a"].append(4)
    assert metadata.to_json() == CONTENT
    changed = metadata.replace(nr_labels=8, beam_size=5)
    assert (changed.nr_labels, changed.beam_size, metadata.nr_labels) == (8, 5, 7)
    assert list(changed.content) == [*CONTENT, "beam_size"]


def test_equal_by_content_and_pickled():
    metadata = ModelMetadata(CONTENT)
    for again in (pickle.loads(pickle.dumps(metadata)), copy.deepcopy(metadata), ModelMetadata(metadata.content)):
        assert again == metadata
        assert list(again.content) == list(CONTENT)
    assert ModelMetadata() != metadata
    assert repr(metadata) == "ModelMetadata(XTransformer, model, nr_labels, train_params, embedding_dim, versions)"


def test_values():
    metadata = ModelMetadata(CONTENT)
    assert (metadata.model, metadata.nr_labels, metadata.nr_features) == ("XTransformer", 7, 4)
    assert metadata.pooling == "auto"
    assert metadata.replace(nr_features=9).nr_features == 9
    with pytest.raises(InputError, match=r"params\.json: truncate_length is missing"):
        _ = metadata.truncate_length
    for wrong in ("7", None, True):
        with pytest.raises(InputError, match=r"params\.json: nr_labels is .*\n.*a number"):
            _ = metadata.replace(nr_labels=wrong).nr_labels


def test_unknown_keys_survive(tmp_path):
    corpus = write_corpus(tmp_path)
    run_train("-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", tmp_path / "m")
    XRLinear.load(tmp_path / "m").save(tmp_path / "again")
    before = (tmp_path / "m" / "params.json").read_text()
    assert (tmp_path / "again" / "params.json").read_text() == before
    content = {"later": {"than": "this"}, **json.loads(before), "also": None}
    del content["checksum"]
    (tmp_path / "m" / "params.json").write_text(json.dumps(content))
    XRLinear.load(tmp_path / "m").save(tmp_path / "edited")
    written = json.loads((tmp_path / "edited" / "params.json").read_text())
    own = [key for key in written if key not in ("format", "version", "checksum", "files")]
    assert own == ["later", *[key for key in json.loads(before) if key in own], "also"]
    assert (written["later"], written["also"]) == ({"than": "this"}, None)
    assert sorted(written["files"]) == sorted(content["files"])
