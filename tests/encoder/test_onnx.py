"""The encoder in ONNX Runtime: the same embeddings as TensorFlow's, for all architectures and poolings."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.encoder.tiny import CASES, documents, perturbed, shared_encoder, tiny_encoder
from tests.refusals import refused
from xmc_tf.encoder.network.config import ACTIVATIONS
from xmc_tf.encoder.network.modules import POOLINGS
from xmc_tf.encoder.network.operations import ACTIVATIONS as FUNCTIONS
from xmc_tf.encoder.onnx.encoder import GRAPH, OnnxEncoder, choose_runtime, open_session, write_encoder
from xmc_tf.encoder.onnx.graph import Graph
from xmc_tf.encoder.onnx.network import GraphOperations, GraphWeights

pytestmark = pytest.mark.full

# Each architecture and variant with its own pooling; the other poolings with an encoder of each kind of last token.
WITH_POOLINGS = [(case, "auto") for case in CASES] + [
    (case, pooling) for case in ("bert", "xlnet") for pooling in POOLINGS if (case, pooling) != ("xlnet", "pooler")
]


def both(encoder, folder, **options):
    """Return an encoder as ONNX Runtime has it."""
    encoder.save(folder / "tensorflow")
    write_encoder(folder / "tensorflow", folder / "onnx", **options)
    return OnnxEncoder.load(folder / "onnx", threads=1)


@pytest.mark.parametrize(("case", "pooling"), WITH_POOLINGS)
def test_embeddings_are_tensorflows(case, pooling, tmp_path):
    encoder = perturbed(tiny_encoder(case, pooling))
    runtime = both(encoder, tmp_path)
    for lengths in ((7, 3, 1, 12), (5, 0)):
        ids, mask = documents(case, lengths)
        np.testing.assert_allclose(runtime.embed(ids, mask), encoder(ids, mask), atol=3e-6)
    assert (runtime.dim, runtime.max_length) == (encoder.dim, encoder.max_length)


# Gemma scales its embeddings, and with them what 8 bits round: less than 0.001 from 64 numbers per token on. T5 does
# not scale scores of attention, so its weights are smaller.
OTHER_SIZES = {
    "gemma3_text": {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}, "mt5": {"initializer_range": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("case", ["bert", "deberta-v2 convolution", "gemma3_text", "modernbert", "mt5", "qwen3"])
def test_eight_bits_stay_near_and_are_a_quarter_of_the_file(case, tmp_path):
    encoder = perturbed(tiny_encoder(case, "mean", vocab_size=3000, **OTHER_SIZES.get(case, {})))
    runtime = both(encoder, tmp_path, precision="int8")
    ids, mask = documents(case)
    ours, theirs = encoder(ids, mask).numpy(), runtime.embed(ids, mask)
    cosine = (ours * theirs).sum(axis=1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosine.min() > 0.999
    assert not np.allclose(ours, theirs, atol=1e-5)
    write_encoder(tmp_path / "tensorflow", tmp_path / "fp32")
    model = onnx.load(tmp_path / "onnx" / GRAPH)
    large = [one for one in model.graph.initializer if one.name == "words"]
    assert [onnx.TensorProto.DataType.Name(one.data_type) for one in large] == ["INT8"]


def test_eight_bits_of_a_document_do_not_depend_on_its_batch(tmp_path):
    runtime = both(perturbed(tiny_encoder("bert", "mean")), tmp_path, precision="int8")
    ids, mask = documents("bert")
    alone = np.concatenate([runtime.embed(ids[row : row + 1], mask[row : row + 1]) for row in range(len(ids))])
    np.testing.assert_allclose(runtime.embed(ids, mask), alone, atol=3e-6)


def test_products_of_bytes_are_exact_at_their_extremes():
    rows = np.array([np.ones(256), -np.ones(256), np.tile([1, -1], 128), np.zeros(256)], np.float32)
    graph = Graph()
    values = {"kernel.kernel": rows.T.copy(), "bias": np.arange(4, dtype=np.float32)}
    weights = GraphWeights(graph, values, "int8")
    x = graph.input("x", graph.float32, ["rows", 256])
    out = GraphOperations(graph, "gelu", 1e-12).dense(x, weights["kernel.kernel"], weights["bias"], graph.float32)
    session, _kept = open_session(graph.file(out, "out", ["rows", 4]), 1, graph)
    np.testing.assert_allclose(session.run(None, {"x": rows})[0], rows @ rows.T + np.arange(4), rtol=1e-6)
    # The processor adds two products of bytes in 16 bits, if it has no VNNI.
    assert 2 * 255 * np.abs(graph.weights["kernel.kernel"].astype(int)).max() <= np.iinfo(np.int16).max


@pytest.mark.parametrize("case", ["bert", "xlnet", "deberta-v2"])
def test_a_graph_is_valid_onnx_with_the_weights_beside_it(case, tmp_path):
    encoder = shared_encoder(case)
    both(encoder, tmp_path)
    onnx.checker.check_model(str(tmp_path / "onnx" / GRAPH))
    model = onnx.load(tmp_path / "onnx" / GRAPH)
    assert [one.name for one in model.graph.input] == ["input_ids", "attention_mask"]
    stored = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    used = {name for node in model.graph.node for name in node.input}
    assert {name for name in encoder.weights if name in stored} == {name for name in encoder.weights if name in used}
    for name in encoder.weights.keys() & stored.keys():
        np.testing.assert_array_equal(stored[name], encoder.weights[name].numpy())


def test_the_configuration_knows_the_activations_of_both_runtimes(tmp_path):
    assert set(ACTIVATIONS) == set(FUNCTIONS)
    for name in ACTIVATIONS:
        encoder = perturbed(tiny_encoder("bert", "mean", hidden_act=name))
        runtime = both(encoder, tmp_path / name)
        ids, mask = documents("bert")
        np.testing.assert_allclose(runtime.embed(ids, mask), encoder(ids, mask).numpy(), atol=3e-6, err_msg=name)


def test_a_runtime_is_chosen_by_the_files_and_by_the_packages(tmp_path, monkeypatch):
    runtime = both(shared_encoder("bert"), tmp_path)
    plain, exported = tmp_path / "tensorflow", tmp_path / "onnx"
    assert (choose_runtime("auto", plain), choose_runtime("auto", exported)) == ("tensorflow", "onnx")
    assert choose_runtime("onnx", plain) == "onnx"
    refused("was exported for ONNX Runtime", choose_runtime, "tensorflow", exported)
    missing = {"tensorflow"}
    monkeypatch.setattr(
        "xmc_tf.encoder.onnx.encoder.find_spec", lambda name: None if name in missing else runtime.__module__
    )
    assert choose_runtime("auto", plain) == "onnx"
    missing.add("onnxruntime")
    refused("neither ONNX Runtime nor TensorFlow is installed", choose_runtime, "auto", plain)


def test_a_damaged_graph_is_named(tmp_path):
    both(shared_encoder("bert"), tmp_path)
    (tmp_path / "onnx" / GRAPH).write_bytes(b"not a graph")
    refused(rf"{GRAPH} cannot be loaded by ONNX Runtime", OnnxEncoder.load, tmp_path / "onnx")
