"""Folders of sentence-transformers: its embeddings in all runtimes, training through its modules, what is refused."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.encoder.folders import EXPECTED, FOLDERS, LENGTH, TEXTS, in_all_runtimes, write_folder, write_json
from tests.encoder.tiny import documents
from tests.refusals import refused
from xmc_tf.data.windows import WindowOptions
from xmc_tf.encoder import Encoder, TextTokenizer
from xmc_tf.encoder.onnx.encoder import OnnxEncoder, write_encoder
from xmc_tf.encoder.sentence_transformers import check_folder
from xmc_tf.params import MatcherParams
from xmc_tf.plan.formulas import encoder_size

CORE = ("two dense, pytorch_model.bin", "prompt not pooled")
DENSE = "two dense, pytorch_model.bin"


@pytest.mark.parametrize("name", [one if one in CORE else pytest.param(one, marks=pytest.mark.full) for one in FOLDERS])
def test_embeddings_are_those_of_sentence_transformers(name, tmp_path):
    """The numbers come from benchmarks/interop/sentence_transformers_folders.py."""
    expected = np.array(json.loads(EXPECTED.read_text())[name])
    assert encoder_size(str(write_folder(name, tmp_path / "planned"))).dim == expected.shape[1]
    for runtime, found in in_all_runtimes(write_folder(name, tmp_path / "folder"), tmp_path, TEXTS).items():
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=runtime)


# A file of the folder "dense", changes of its fields (None: the file is removed), and words of the refusal.
@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("modules.json", [2, "sentence_transformers.models.LayerNorm"], "module 2, LayerNorm, is not supported"),
        ("modules.json", [2, "their_code.Dense"], "module their_code.Dense is code that xmc_tf does not have"),
        ("modules.json", [1, "sentence_transformers.models.Normalize"], "module 1, Normalize, is not supported"),
        ("1_Pooling/config.json", None, "1_Pooling/config.json is missing"),
        ("1_Pooling/config.json", {"pooling_mode_some_tokens": True}, "pooling_mode_some_tokens True is not supported"),
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "pooling_mode ['median'] is not supported"),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual True is not supported"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "module_input_name 'token_embeddings'"),
        ("2_Dense/config.json", {"activation_function": "torch.nn.Softmax"}, "activation_function torch.nn.Softmax"),
        (
            "2_Dense/config.json",
            {"in_features": 8},
            "has no linear.weight of the shape (6, 8)",
        ),
        ("2_Dense/model.safetensors", None, "has no linear.weight of the shape (6, 16)"),
        ("sentence_bert_config.json", {"query_length": 3}, "query_length 3 is not supported"),
        ("sentence_bert_config.json", {"config_args": {"gate": 1}}, "config_args with gate are not supported"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "SparseEncoder gives no embedding"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "own"}, "similarity_fn_name own"),
        ("config_sentence_transformers.json", {"prompts": ["a"]}, "prompts or default_prompt_name are not texts"),
        ("2_Dense/model.safetensors", b"x", "cannot be read"),
    ],
)
def test_what_is_not_known_is_refused_by_name(file, changes, words, tmp_path):
    path = write_folder("dense", tmp_path / "it") / file
    if changes is None:
        path.unlink()
    elif isinstance(changes, bytes):
        path.write_bytes(changes)
    elif isinstance(changes, list):
        content = json.loads(path.read_text())
        content[changes[0]]["type"] = changes[1]
        write_json(path, content)
    else:
        write_json(path, json.loads(path.read_text()) | changes)
    refused([words, "fix"], check_folder, tmp_path / "it")
    if "config_sentence" in file:
        refused([words], TextTokenizer.load, tmp_path / "it")
    else:
        refused([words], Encoder.load, tmp_path / "it")


def test_another_pooling_of_another_width_is_refused(tmp_path):
    folder = write_folder(DENSE, tmp_path / "it")
    refused("expected: 16(.|\\n)*received: 32", Encoder.load, folder, pooling="cls")
    assert Encoder.load(write_folder("dense", tmp_path / "one"), pooling="cls").pooling == "cls"


def test_a_tokenizer_that_does_not_lower_texts_is_refused(tmp_path):
    folder = write_folder("mean", tmp_path / "it")
    write_json(folder / "sentence_bert_config.json", {"do_lower_case": True})
    TextTokenizer.load(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    write_json(folder / "tokenizer_config.json", settings | {"do_lower_case": False})
    refused(["do_lower_case is not done by the tokenizer", "Lowercase"], TextTokenizer.load, folder)


@pytest.mark.parametrize("frozen", ["all", "1"])
def test_gradients_through_dense_modules_are_those_of_finite_differences(frozen, tmp_path):
    encoder = Encoder.load(write_folder(DENSE, tmp_path / "it"))
    encoder.freeze(frozen)
    assert encoder.dim == 5
    ids, mask = documents("bert")
    ids = ids % 40
    states = ids if frozen == "all" else encoder.frozen_states(ids, mask)
    factors = np.random.default_rng(0).standard_normal((len(ids), 5)).astype(np.float32)

    def loss():
        return tf.reduce_sum(encoder(states, mask, packed=False) * factors)

    with tf.GradientTape() as tape:
        total = loss()
    chosen = {one.name: one for one in encoder.trainable_variables if one.name.startswith(("after", "layer_1_out"))}
    assert {"after_0_kernel:0", "after_2_kernel:0", "after_2_bias:0", "layer_1_outer_kernel:0"} <= chosen.keys()
    gradients = tape.gradient(total, chosen)
    for name, variable in chosen.items():
        direction = tf.math.l2_normalize(gradients[name])
        before, step = variable.numpy(), 1e-2
        variable.assign(before + step * direction)
        above = loss()
        variable.assign(before - step * direction)
        slope = (above - loss()) / (2 * step)
        variable.assign(before)
        np.testing.assert_allclose(slope, tf.norm(gradients[name]), rtol=2e-2, err_msg=name)


def test_half_precision_and_eight_bits_stay_near(tmp_path):
    encoder = Encoder.load(write_folder(DENSE, tmp_path / "it"))
    ids, mask = documents("bert")
    ids = ids % 40
    expected = encoder.embed(ids, mask)
    encoder.compute_in("bf16")
    write_encoder(tmp_path / "it", tmp_path / "onnx", precision="int8")
    for found in (encoder.embed(ids, mask), OnnxEncoder.load(tmp_path / "onnx", threads=1).embed(ids, mask)):
        cosines = (found * expected).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
        assert cosines.min() > 0.999
        assert not np.allclose(found, expected, atol=1e-6)


def test_last_tokens_are_found_with_padding_on_either_side(tmp_path):
    encoder = Encoder.load(write_folder("mean", tmp_path / "it"), pooling="last")
    mask = np.array([[1, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0]], np.int32)
    states = np.random.default_rng(0).standard_normal((3, 4, 16)).astype(np.float32)
    encoder.freeze("1")  # states are accepted in place of ids
    encoder.frozen_layers = encoder.config.layers
    found = encoder(states, mask, packed=False).numpy()
    np.testing.assert_array_equal(found, states[[0, 1, 2], [2, 3, 0]])


@pytest.mark.parametrize(
    ("prompts", "asked", "expected"),
    [
        ({"prompts": {"query": "q ", "passage": "p "}}, {}, "p "),
        ({"prompts": {"query": "q ", "document": "", "corpus": "c "}}, {}, "c "),
        ({"prompts": {"query": "q ", "document": ""}}, {}, ""),
        ({"prompts": {"query": "q ", "document": ""}, "default_prompt_name": "query"}, {}, "q "),
        ({"prompts": {"query": "q "}}, {"prompt_name": "query"}, "q "),
        ({"prompts": {"document": "d "}}, {"prompt": ""}, ""),
        ({}, {"prompt": "own: "}, "own: "),
        ({}, {}, ""),
    ],
)
def test_prompts_are_chosen_for_documents_and_kept(prompts, asked, expected, tmp_path):
    folder = write_folder("mean", tmp_path / "it")
    write_json(folder / "config_sentence_transformers.json", prompts)
    tokenizer = TextTokenizer.load(folder, **asked)
    assert tokenizer.prompt == expected
    (tmp_path / "saved").mkdir()
    tokenizer.save(tmp_path / "saved")
    loaded = TextTokenizer.load(tmp_path / "saved")
    assert (loaded.prompt, loaded.fingerprint) == (expected, tokenizer.fingerprint)
    assert (loaded.fingerprint == TextTokenizer.load(folder, prompt="").fingerprint) == (expected == "")
    if not asked:
        names = ", ".join(sorted(prompts.get("prompts", {}))) or "the folder has no prompts"
        refused(["'title'", names], TextTokenizer.load, folder, prompt_name="title")


def test_a_prompt_counts_in_the_maximum_length_of_each_window(tmp_path):
    tokenizer = TextTokenizer.load(write_folder("prompt not pooled", tmp_path / "it"))
    of_prompt = [tokenizer.backend.token_to_id(one) for one in ("title", ":", "none", "|")]
    for most in (1, 3):
        ids, mask, _ = tokenizer.in_graph(LENGTH, most).windows(tf.constant(TEXTS))
        windows = tokenizer.windows(TEXTS, WindowOptions(LENGTH, most))[0]
        assert [row[seen > 0].tolist() for row, seen in zip(ids.numpy(), mask.numpy(), strict=True)] == [
            one.tolist() for one in windows
        ]
        assert all(one[1:5].tolist() == of_prompt for one in windows)
        assert max(map(len, windows)) == LENGTH
        assert len(windows) == len(TEXTS) + (2 if most > 1 else 0)
    refused("7 tokens or more, of which 2 are special ones and 4 those of the prompt", tokenizer.tokenize, TEXTS, 6)
    refused("does not go with prompt", MatcherParams, prompt="a", prompt_name="b")
