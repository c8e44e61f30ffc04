"""Folders of ``pecos.xmc.xtransformer``: loaded, predicted with, converted, exported, shown; and what is refused."""

import json
import logging
import re
import shutil

import numpy as np
import pytest

from tests.data.torch_writer import Obj, torch_zip
from tests.pipeline.pecos_model import (
    CLUSTERS,
    DIM,
    FEATURES,
    LABELS,
    LENGTH,
    TEXTS,
    TOPK,
    PecosModel,
    features,
    head_object,
)
from tests.refusals import refused
from xmc_tf import encode, export, predict
from xmc_tf.common.errors import InputError
from xmc_tf.data import load_matrix, save_matrix
from xmc_tf.encoder import TextTokenizer
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.serving.local import LocalModel
from xmc_tf.tree import load_chain, show


@pytest.fixture(scope="module")
def pecos(tmp_path_factory):
    """A model with given features, rankers and a head of labels."""
    return PecosModel(tmp_path_factory.mktemp("pecos") / "model")


@pytest.fixture(scope="module")
def loaded(pecos):
    return XTransformer.load(pecos.folder)


@pytest.fixture(scope="module")
def text_only(tmp_path_factory):
    """A model whose rankers see the embedding alone."""
    return PecosModel(tmp_path_factory.mktemp("pecos") / "text", features=0)


@pytest.fixture
def copy(pecos, tmp_path):
    """A copy of the model that a test may damage."""
    shutil.copytree(pecos.folder, tmp_path / "copy")
    return tmp_path / "copy"


def unit_rows(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_rankers_predict_as_computed_by_hand(pecos, loaded):
    X = features()
    found = loaded.predict(TEXTS, X)
    np.testing.assert_allclose(found.toarray(), pecos.predict(TEXTS, X.toarray()), atol=1e-5)
    assert np.diff(found.indptr).tolist() == [TOPK] * len(TEXTS)
    assert isinstance(loaded, XTransformer)
    assert (loaded.nr_labels, loaded.nr_given_features, loaded.metadata.ensemble_method) == (
        LABELS, FEATURES, "concat-only",
    )  # fmt: skip
    by_dense = loaded.predict(TEXTS, X.toarray())
    np.testing.assert_allclose(by_dense.toarray(), found.toarray(), atol=1e-6)


def test_the_label_head_predicts_as_computed_by_hand(pecos, loaded):
    found = loaded.predict(TEXTS, ensemble_method="transformer-only")
    np.testing.assert_allclose(found.toarray(), pecos.predict_by_head(TEXTS), atol=1e-5)
    both = loaded.predict(TEXTS, features(), ensemble_method="average")
    assert both.shape == (len(TEXTS), LABELS)


def test_saving_converts_it(pecos, loaded, tmp_path):
    refused("is the PECOS folder that this model was loaded from", loaded.save, pecos.folder)
    loaded.save(tmp_path / "ours")
    assert sorted(one.name for one in (tmp_path / "ours").iterdir()) == [
        "encoder", "head", "params.json", "ranker", "tree",
    ]  # fmt: skip
    ours = XTransformer.load(tmp_path / "ours")
    X = features()
    np.testing.assert_allclose(ours.predict(TEXTS, X).toarray(), pecos.predict(TEXTS, X.toarray()), atol=1e-5)
    by_head = ours.predict(TEXTS, ensemble_method="transformer-only").toarray()
    np.testing.assert_allclose(by_head, pecos.predict_by_head(TEXTS), atol=1e-5)
    assert ours.tree == loaded.tree
    content = (tmp_path / "ours" / "params.json").read_text()
    assert "/somewhere/else" not in content
    # PECOS rewrites its files in place: ours must not be the same ones.
    weights = "ranker/1.model/W.npz"
    assert not (pecos.folder / "concat_model" / weights).samefile(tmp_path / "ours" / "ranker" / weights)


def test_command_lines(pecos, tmp_path, capsys):
    texts, X = tmp_path / "texts.txt", tmp_path / "X.npz"
    texts.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    save_matrix(X, features())
    common = ["-m", str(pecos.folder), "-t", str(texts)]
    predict.main([*common, "-x", str(X), "-o", str(tmp_path / "P.npz"), "-n", "1"])
    found = load_matrix(tmp_path / "P.npz").toarray()
    np.testing.assert_allclose(found, pecos.predict(TEXTS, features().toarray()), atol=1e-5)
    encode.main([*common, "-o", str(tmp_path / "E.npy")])
    np.testing.assert_allclose(np.load(tmp_path / "E.npy"), unit_rows(pecos.embeddings(TEXTS)), atol=1e-5)
    capsys.readouterr()
    show.main([str(pecos.folder), "--depth", "1"])
    assert capsys.readouterr().out.splitlines()[0] == f"{LABELS} labels"
    refused("trained on texts and features", predict.main, [*common, "-o", str(tmp_path / "P.npz")])


def test_it_cannot_be_audited(loaded):
    refused("trained by xmc_tf", loaded.audit, TEXTS, np.eye(len(TEXTS), LABELS), X=features())


def test_export_of_a_model_of_texts_alone(text_only, tmp_path):
    expected = text_only.predict(TEXTS)
    model = XTransformer.load(text_only.folder)
    np.testing.assert_allclose(model.predict(TEXTS).toarray(), expected, atol=1e-5)
    export.main(["-m", str(text_only.folder), "-o", str(tmp_path / "served" / "1")])
    served = LocalModel(tmp_path / "served").predict(TEXTS)
    np.testing.assert_allclose(served.toarray(), expected, atol=1e-5)


def test_a_model_without_rankers(tmp_path):
    pecos = PecosModel(tmp_path / "model", rankers=False)
    model = XTransformer.load(pecos.folder)
    np.testing.assert_allclose(model.predict(TEXTS).toarray(), pecos.predict_by_head(TEXTS), atol=1e-5)
    refused("has no rankers", model.predict, TEXTS, ensemble_method="concat-only")


def test_a_head_of_clusters_is_no_head_of_labels(tmp_path):
    model = XTransformer.load(PecosModel(tmp_path / "model", head_rows=CLUSTERS).folder)
    assert model.predict(TEXTS, features()).shape == (len(TEXTS), LABELS)
    refused("above the labels", model.predict, TEXTS, ensemble_method="transformer-only")


def test_vocabulary_alone(pecos, copy, caplog):
    with caplog.at_level(logging.INFO, logger="xmc_tf"):
        tokenizer = TextTokenizer.load(copy / "text_encoder")
    assert re.search(r"assuming BertTokenizer(Fast)?, which converts text to lower case", caplog.text)
    assert tokenizer.tokenize(["LIBRARY"], LENGTH)[0].tolist() == tokenizer.tokenize(["library"], LENGTH)[0].tolist()
    place = copy / "text_encoder" / "text_tokenizer"
    words = (place / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (place / "vocab.txt").write_text("".join(f"{word}\n" for word in [*words, *(w.upper() for w in words)]))
    caplog.clear()
    TextTokenizer.load(copy / "text_encoder")
    assert "tokens have capitals; if the encoder is cased, add tokenizer_config.json" in caplog.text
    # The first versions of PECOS called the folder so.
    place = place.rename(place.with_name("tokenizer"))
    (place / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    caplog.clear()
    tokenizer = TextTokenizer.load(copy / "text_encoder")
    assert tokenizer.tokenize(["LIBRARY"], LENGTH)[0].tolist() != tokenizer.tokenize(["library"], LENGTH)[0].tolist()
    assert not caplog.text
    (copy / "text_encoder" / "text_encoder" / "config.json").unlink()
    refused(r"the tokenizer in .* cannot be read", TextTokenizer.load, copy / "text_encoder")


def edited(path, **changes):
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps({key: value for key, value in content.items() if value != "absent"}))


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("param.json", {"nr_labels": "many"}, "param.json: nr_labels is many"),
        ("param.json", {"nr_labels": 1 << 40}, "nr_labels is 1099511627776"),
        ("text_encoder/param.json", {"pred_params": {"truncate_length": "long"}}, "param.json: pred_params"),
        ("text_encoder/param.json", {"pred_params": {"only_topk": 0}}, "param.json: pred_params"),
        ("text_encoder/text_encoder/config.json", {"model_type": "gpt2"}, "unsupported architecture: gpt2"),
        ("text_encoder/text_encoder/config.json", {"model_type": "electra"}, "PECOS has no encoder 'electra'"),
        ("text_encoder/text_encoder/config.json", {"hidden_size": None}, "does not fit the encoder"),
        ("concat_model/ranker/param.json", {"nr_features": DIM - 1}, "does not fit the encoder"),
    ],
)
def test_parameters_that_are_wrong(copy, file, changes, message):
    edited(copy / file, **changes)
    refused(message, XTransformer.load, copy)


def test_xlnets_summary(copy):
    config = copy / "text_encoder" / "text_encoder" / "config.json"
    edited(config, model_type="xlnet", d_model=DIM, summary_use_proj=False)
    assert XTransformer.load(copy).metadata.pooling == "last_tanh"
    edited(config, summary_activation=None)
    assert XTransformer.load(copy).metadata.pooling == "last"
    edited(config, summary_type="mean")
    refused("these summary options of XLNet are not supported", XTransformer.load, copy)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("text_encoder/text_encoder", "config.json is missing"),
        ("text_encoder/text_encoder/pytorch_model.bin", "a configuration but no weights"),
        ("text_encoder/text_tokenizer", "is not a folder with a tokenizer"),
        ("concat_model/ranker/param.json", "param.json is missing"),
        ("concat_model/ranker/1.model/W.npz", "W.npz is missing"),
    ],
)
def test_a_folder_that_was_copied_in_part(copy, missing, message):
    path = copy / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(InputError, match=message):
        XTransformer.load(copy).predict(TEXTS, features())


def test_parts_of_a_model_are_named(copy):
    refused(["is not an XR-Transformer model", "XLinearModel"], XTransformer.load, copy / "concat_model")
    refused("is not an XR-Transformer model", XTransformer.load, copy / "text_encoder")
    for content in ("{", "[" * 100_000, "[]", '{"__meta__": 3}'):
        (copy / "param.json").write_text(content)
        refused(r"params\.json is missing", XTransformer.load, copy)


def test_a_head_that_carries_code_or_does_not_fit(copy, tmp_path):
    head, mark = copy / "text_encoder" / "text_model", tmp_path / "executed"
    program = f"cos\nsystem\n(X{chr(len(str(mark)) + 6)}\0\0\0touch {mark}tR."
    fitting = np.ones((LABELS + 1, DIM + 1), np.float32)
    for content, message in (
        (torch_zip(None, pickled=program.encode("latin-1")), "contains something other than tensors"),
        (torch_zip(Obj("builtins", "eval", {})), "contains something other than tensors"),
        (torch_zip({"W": fitting}), "is not a label head of PECOS"),
        (torch_zip(head_object(fitting[:, 1:])), "does not fit the encoder"),
        (torch_zip(head_object(fitting[:1])), "does not fit the encoder"),
        (b"", "is damaged or contains"),
    ):
        head.write_bytes(content)
        model = XTransformer.load(copy)
        with pytest.raises(InputError, match=message):
            _ = model.matcher
    assert not mark.exists()
    assert model.predict(TEXTS, features()).shape == (len(TEXTS), LABELS)  # which needs no head


def test_trees_of_rankers(pecos, tmp_path):
    tree = load_chain(pecos.folder / "concat_model")
    assert list(tree.level_sizes) == [1, CLUSTERS, LABELS]
    (tmp_path / "ranker").mkdir()
    (tmp_path / "ranker" / "param.json").write_text("{}")
    refused("contains no label tree", load_chain, tmp_path)
