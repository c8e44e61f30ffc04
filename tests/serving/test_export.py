"""What is exported is an ordinary SavedModel: plain TensorFlow loads it and answers as the model does."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session

from tests.distributed.launch import REPOSITORY
from tests.files import flipped
from tests.plain_tensorflow import ask_in_batches, foreign_operations, nodes
from tests.refusals import refused
from tests.serving.cases import HARD, NAMES, assert_same, documents, random_model, random_sparse
from xmc_tf.common.errors import InputError
from xmc_tf.data import Features
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import HierarchicalKMeansParams, PredictionOptions, XRLinearParams
from xmc_tf.serving import streamed
from xmc_tf.serving.export import ModelParts, export_model
from xmc_tf.serving.local import LocalModel
from xmc_tf.store.models import ABOUT

# By both loaders, one by one and in batches, the last of which has fewer.
WAYS = [(1, False), (64, False), (7, True)]


def test_plain_tensorflow_answers_as_the_model_does(model, exported):
    texts = [*HARD, *(text.encode() for text in documents(60, seed=2)[0])]
    assert foreign_operations(exported) == set()  # so it is loaded without tensorflow_text
    used = {node.op for node in nodes(exported)}
    assert len(used) > 20
    assert not [name for name in used if "PyFunc" in name]
    expected = model.predict(texts, only_topk=5, beam_size=8, threads=1)
    for size, session in WAYS:
        answers = ask_in_batches(exported, texts, size, session=session)
        labels, scores = answers["labels"], answers["scores"]
        assert (labels.dtype, scores.dtype, labels.shape) == (np.int64, np.float32, (len(texts), 5))
        assert_same(labels, scores, expected)
        for row, of_row in zip(labels, answers["names"], strict=True):
            assert [name.decode() for name in of_row] == [NAMES[label] if label >= 0 else "" for label in row]


def test_several_trees_are_one_graph_that_gives_the_mean_of_their_scores(tmp_path):
    texts, Y = documents()
    shapes = tuple(
        HierarchicalKMeansParams(nr_splits=4, max_leaf_size=leaf, seed=seed) for seed, leaf in enumerate((6, 20, 60))
    )
    model = XRLinear.train(texts, Y, names=NAMES, params=XRLinearParams(tree=shapes), threads=1)
    made = export_model(model.export_parts(), tmp_path / "1", PredictionOptions(only_topk=30, beam_size=8))
    assert made.table().count("\n1 of tree ") == 3
    asked = [*HARD, *(text.encode() for text in documents(60, seed=2)[0])]
    answer = LocalModel(tmp_path / "1").ask(asked)
    assert_same(answer["labels"], answer["scores"], model.predict(asked, only_topk=30, beam_size=8), atol=1e-5)
    with pytest.raises(InputError, match="scores may be negative"):
        export_model(model.export_parts(), tmp_path / "log", PredictionOptions(post_processor="log-sigmoid"))


def test_answers_do_not_depend_on_what_was_asked_together(local):
    # A server that batches puts requests behind each other and cuts the answers apart again.
    first, second = HARD[3:5], [text.encode() for text in documents(9, seed=4)[0]]
    for signature in ("serving_default", "paths"):
        alone = [local.ask(part, signature) for part in (first, second)]
        together = local.ask([*first, *second], signature)
        for name, values in together.items():
            for part, cut in zip(alone, np.split(values, [len(first)]), strict=True):
                if values.dtype == np.float32:
                    np.testing.assert_allclose(cut, part[name], rtol=0, atol=1e-6)
                else:
                    np.testing.assert_array_equal(cut, part[name], name)


def test_features_are_what_a_caller_may_send_instead(model, exported, local):
    texts = documents(12, seed=6)[0]
    ids, weights = model.tfidf.graph().padded(tf.constant(texts))
    signature = tf.saved_model.load(str(exported)).signatures["features"]
    of_text = local.ask(texts)
    for wider in (0, 5):  # as a server pads them
        padding = [[0, 0], [0, wider]]
        out = signature(feature_ids=tf.pad(ids, padding), feature_weights=tf.pad(weights, padding))
        np.testing.assert_array_equal(out["labels"], of_text["labels"])
        np.testing.assert_allclose(out["scores"], of_text["scores"], atol=1e-6)
    for wrong in (-1, model.ranker.nr_features):
        with pytest.raises(tf.errors.InvalidArgumentError, match="feature_ids must lie between 0 and"):
            signature(feature_ids=tf.fill([1, 1], wrong), feature_weights=tf.ones([1, 1]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have the same shape"):
        signature(feature_ids=ids, feature_weights=weights[:, 1:])


def test_number_of_labels_per_request(model, local):
    texts = documents(4, seed=8)[0]
    wanted = np.array([3, 1, 8, 2], np.int32)
    out = local.ask(texts, "top_k", k=wanted)
    assert out["labels"].shape == (4, 8)
    for row, k in enumerate(wanted):
        expected = model.predict(texts[row : row + 1], only_topk=int(k), beam_size=8, threads=1)
        assert_same(out["labels"][row : row + 1], out["scores"][row : row + 1], expected)
        assert [bool(name) for name in out["names"][row]] == [place < k for place in range(8)]
    assert local.ask([], "top_k", k=np.zeros(0, np.int32))["labels"].shape == (0, 0)


@pytest.mark.parametrize(
    ("k", "message"),
    [
        ([9], "k may be at most 8 in this model: it was exported with this beam; export it again with a larger -b"),
        ([0], "k must be at least 1"),
        ([1, 1], "k must have one number for each text"),
    ],
)
def test_impossible_numbers_of_labels_are_refused_in_words(k, message, local):
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(message)):
        local.ask(["word1"], "top_k", k=np.array(k, np.int32))


NO_VECTOR = r"Shape of tensor \S*{}\S* {} is not compatible with expected shape \[\?\]"
WRONG_REQUESTS = [
    ("serving_default", {"text": np.array([1.0], np.float32)}, "string but float is provided"),
    ("serving_default", {"text": np.array("one", object)}, NO_VECTOR.format("text", r"\S*")),
    ("paths", {"text": np.array([["a", "b"]], object)}, NO_VECTOR.format("text", r"\S*")),
    ("top_k", {"k": np.array(1, np.int32)}, NO_VECTOR.format("k", r"\[\]")),
    (
        "features",
        {"feature_ids": np.array([1], np.int32)},
        r"Shape of tensor \S*feature_ids\S* \[1\] is not compatible",
    ),
]


def test_requests_of_a_wrong_type_or_shape_are_refused_in_words(exported):
    v1 = tf.compat.v1
    right = {
        "text": np.array(["word1"], object), "k": np.array([1], np.int32),
        "feature_ids": np.array([[1]], np.int32), "feature_weights": np.array([[1]], np.float32),
    }  # fmt: skip
    with tf.Graph().as_default() as graph, v1.Session() as session:
        signatures = v1.saved_model.loader.load(session, ["serve"], str(exported)).signature_def

        def run(definition, given):
            # As a server does it: past the checks that Python makes of what it feeds.
            inputs = {
                graph.get_tensor_by_name(tensor.name)._as_tf_output(): given[name]
                for name, tensor in definition.inputs.items()
            }
            outputs = [graph.get_tensor_by_name(definition.outputs["labels"].name)._as_tf_output()]
            return pywrap_tf_session.TF_SessionRun_wrapper(session._session, None, inputs, outputs, [], None)

        session.run([])
        for signature, wrong, message in WRONG_REQUESTS:
            assert run(signatures[signature], right)[0].shape[0] == 1
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                run(signatures[signature], right | wrong)


def test_the_path_to_each_label_is_that_of_the_tree(model, local):
    texts = documents(5, seed=9)[0]
    out = local.ask(texts, "paths")
    depth = model.tree.depth
    assert out["nodes"].shape == out["node_scores"].shape == (5, 5, depth - 1)
    for row, labels in enumerate(out["labels"]):
        for column, label in enumerate(labels):
            path = model.tree.path(int(label))[1:]
            assert tuple(out["nodes"][row, column]) == path
            scores = [*out["node_scores"][row, column], out["scores"][row, column]]
            assert all(a >= b > 0 for a, b in zip([1.0, *scores], scores, strict=False))
            for level, node in enumerate(path):
                below = {NAMES[one] for one in model.tree.labels_under(level + 1, node)}
                examples = [name.decode() for name in out["node_examples"][row, column, level] if name]
                assert examples
                assert set(examples) <= below
                assert len(set(examples)) == len(examples)


def test_settings_change_the_answers(model, tmp_path):
    texts = [*documents(30, seed=10)[0], ""]
    settings = {"only_topk": 3, "beam_size": 2, "post_processor": "sigmoid", "threshold": 0.3}
    exported = model.export(tmp_path / "1", **settings)
    lines = exported.table().splitlines()
    assert lines[0].split() == ["level", "nodes", "weights", "full", "form", "MB"]
    assert sum(int(line.split()[2].replace(",", "")) for line in lines[2:]) == model.ranker.nr_weights
    assert json.loads((tmp_path / "1" / ABOUT).read_text())["bytes"] == exported.bytes
    out = LocalModel(tmp_path / "1").ask(texts)
    expected = model.predict(texts, only_topk=3, beam_size=2, post_processor="sigmoid", threads=1)
    for row in range(len(texts)):
        begin, end = expected.indptr[row : row + 2]
        kept = expected.data[begin:end] >= 0.3
        assert out["labels"][row].tolist() == [
            label if keep else -1 for label, keep in zip(expected.indices[begin:end], kept, strict=True)
        ]
    assert -1 in out["labels"]
    assert (out["labels"] >= 0).any()


def test_a_model_that_reads_features_is_asked_with_features(tmp_path):
    draw = np.random.default_rng(12)
    ranker = random_model(draw, nr_dense=6)
    X = Features(random_sparse(draw, 20, 40), draw.standard_normal((20, 6)).astype(np.float32))
    exported = export_model(ModelParts(ranker, None, None), tmp_path / "1")
    loaded = tf.saved_model.load(str(exported.folder))
    assert set(loaded.signatures) == {"serving_default", "features"}
    widest = int(np.diff(X.sparse.indptr).max())
    ids, weights = np.zeros((20, widest), np.int32), np.zeros((20, widest), np.float32)
    for row in range(20):
        begin, end = X.sparse.indptr[row : row + 2]
        ids[row, : end - begin], weights[row, : end - begin] = X.sparse.indices[begin:end], X.sparse.data[begin:end]
    out = loaded.signatures["serving_default"](
        feature_ids=tf.constant(ids), feature_weights=tf.constant(weights), vectors=tf.constant(X.dense)
    )
    assert_same(out["labels"].numpy(), out["scores"].numpy(), ranker.predict(X, threads=1))
    assert [name.decode() for name in out["names"].numpy()[0]] == [str(label) for label in out["labels"].numpy()[0]]


@pytest.mark.full
def test_weights_are_written_in_blocks_and_read_as_one(model, tmp_path, monkeypatch, local):
    monkeypatch.setattr(streamed, "BLOCK_BYTES", 100)
    export_model(model.export_parts(), tmp_path / "1", PredictionOptions(only_topk=5, beam_size=8))
    texts = documents(10, seed=13)[0]
    expected, found = local.ask(texts), LocalModel(tmp_path / "1").ask(texts)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    assert {path.name.split(".")[0] for path in (tmp_path / "1" / "variables").iterdir()} == {"variables"}


def test_nothing_of_the_users_is_overwritten_but_an_older_export(model, exported, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("keep")
    (mine / "saved_model.pb").write_text("of another program")
    refused(r"not part of an export of xmc_tf(.|\n)*saved_model\.pb", export_model, model.export_parts(), mine)
    assert (mine / "notes.txt").read_text() == "keep"
    assert (mine / "saved_model.pb").read_text() == "of another program"
    shutil.copytree(exported, tmp_path / "1")
    export_model(model.export_parts(), tmp_path / "1", PredictionOptions(only_topk=3))
    assert LocalModel(tmp_path / "1").about["k"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "mine"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"only_topk": 0}, "only_topk is out of range"),
        ({"beam_size": -1}, "beam_size is out of range"),
        ({"post_processor": "softmax"}, "post_processor is not an allowed value"),
        ({"threshold": float("nan")}, "threshold is out of range"),
        ({"precision": "fp8"}, "unknown number format of weights: 'fp8'"),
        ({"ensemble_method": "average"}, "ensemble_method cannot be used: an exported model does not keep it"),
        ({"max_pred_chunk": 10}, "max_pred_chunk cannot be used: an exported model does not keep it"),
    ],
)
def test_impossible_settings_are_refused(settings, message, model, tmp_path):
    refused(re.escape(message), model.export, tmp_path / "1", **settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "does not exist"),
        (lambda folder: folder.mkdir(), "is not an exported model"),
        (lambda folder: XRLinear.save(_the_model(), folder), "is a trained model, not an exported one"),
        (lambda folder: _broken(folder), "cannot be loaded"),
        (lambda folder: _of_something_else(folder), "was not exported by xmc_tf"),
    ],
)
def test_folders_that_hold_no_exported_model_are_named(make, message, tmp_path, model, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "_the_model", lambda: model)
    make(tmp_path / "1")
    refused(message, LocalModel, tmp_path / "1")


def _the_model():
    """Stand for the trained model, which the test inserts."""


def _of_something_else(folder):
    tf.saved_model.save(tf.Module(), str(folder))


def _broken(folder):
    _of_something_else(folder)
    (folder / ABOUT).parent.mkdir()
    (folder / ABOUT).write_text('{"format": "xmc_tf.serving"}')
    (folder / "saved_model.pb").write_bytes(b"cut")


PAGE = (REPOSITORY / "docs" / "explanation" / "serving.md").read_text()


def test_the_signatures_are_those_of_an_exported_model(exported):
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    documented = {name: (inputs, outputs) for name, inputs, outputs in rows}
    signatures = tf.saved_model.load(str(exported)).signatures
    assert set(signatures) == set(documented) - {"embed"}  # this model has no encoder
    for name, function in signatures.items():
        inputs, outputs = documented[name]
        for given in function.structured_input_signature[1]:
            assert f"`{given}`" in inputs
        if "the same" not in outputs or name == "paths":
            for output in set(function.structured_outputs) - {"labels", "scores", "names"}:
                assert f"`{output}`" in outputs


@pytest.fixture
def copy(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "1")
    return tmp_path / "1"


def test_all_files_are_recorded_but_the_records_themselves(exported):
    files = {path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()}
    assert set(json.loads((exported / ABOUT).read_text())["files"]) == files - {ABOUT}
    assert {"saved_model.pb", "variables/variables.index"} <= files


def test_a_damaged_file_is_named(copy):
    for name in json.loads((copy / ABOUT).read_text())["files"]:
        with flipped(copy / name), pytest.raises(InputError, match=f"{name} is damaged: its content") as caught:
            LocalModel(copy)
        assert "export the model again" in caught.value.fix


def test_so_are_settings_that_have_changed(copy):
    text = (copy / ABOUT).read_text()
    (copy / ABOUT).write_text(text.replace('"k": 5', '"k": 4'))
    refused(r"xmc_tf\.json has changed since it was exported", LocalModel, copy)


def test_an_export_without_records_still_loads(copy):
    about = json.loads((copy / ABOUT).read_text())
    del about["files"], about["checksum"]
    (copy / ABOUT).write_text(json.dumps(about))
    assert LocalModel(copy).ask(["word1 word2"])["labels"].shape == (1, 5)
