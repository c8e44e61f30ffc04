"""Encoders of every architecture: PyTorch's numbers, padding, gradients, dropout, precision."""

import json
import re
import resource
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors import safe_open
from safetensors.numpy import save_file

from tests.encoder.other_files import save_as_tensorflow_did, torch_weights
from tests.encoder.tiny import (
    ARCHITECTURES,
    CASES,
    EXPECTED,
    LENGTHS,
    VOCABULARY,
    documents,
    perturbed,
    shared_encoder,
    tiny_content,
    tiny_encoder,
)
from tests.refusals import refused
from xmc_tf.encoder import Encoder
from xmc_tf.encoder.network.attention import Layout
from xmc_tf.encoder.network.forward import Forward
from xmc_tf.encoder.network.operations import ACTIVATIONS, Operations, TrainingOperations

REPOSITORY = Path(__file__).parents[2]
# Versions of transformers with TensorFlow had none, or named their weights in another way (T5).
NEVER_IN_TENSORFLOW = ("eurobert", "gemma3_text", "modernbert", "mt5", "nomic_bert", "qwen3", "t5")
IN_HALF = ("bert", "deberta-v2", "eurobert", "gemma3_text", "modernbert", "mt5", "qwen3")
every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)
every_case = pytest.mark.parametrize("case", sorted(CASES))


@every_case
def test_embeddings_are_those_of_pytorch(case):
    """The numbers come from benchmarks/interop/encoders_with_pytorch.py, which compares all states and gradients."""
    encoder = perturbed(Encoder.from_config(tiny_content(case), pooling="mean", seed=3))
    ids, mask = documents(case, (*LENGTHS, min(encoder.max_length, 64)))
    expected = np.array(json.loads(EXPECTED.read_text())[case])
    assert np.abs(np.diff(expected, axis=0)).max() > 1e-3, "different documents have different embeddings"
    found = encoder(tf.constant(ids), tf.constant(mask))
    assert found.dtype == tf.float32
    assert found.shape == (len(ids), 16)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(encoder(ids, mask, packed=False), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.in_graph(tf.constant(ids), tf.constant(mask)), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "hdf5"),
    [(one, False) for one in sorted(CASES) if one.split()[0] not in NEVER_IN_TENSORFLOW]
    + [("bert", True), ("xlnet", True)],
)
def test_folders_of_former_versions_load_with_the_same_embeddings(case, hdf5, tmp_path):
    encoder = perturbed(Encoder.from_config(tiny_content(case), pooling="mean", seed=3))
    save_as_tensorflow_did(encoder, tmp_path, hdf5)
    loaded = Encoder.load(tmp_path, pooling="mean")
    ids, mask = documents(case)
    assert np.array_equal(loaded(ids, mask), encoder(ids, mask))


def test_published_files_of_nomic_bert_load_and_are_written_in_their_form(tmp_path):
    # Names and values as nomic-embed-text-v1.5 has them; transformers maps these names to its own.
    published = {
        "model_type": "nomic_bert", "vocab_size": VOCABULARY, "initializer_range": 0.2, "n_embd": 16, "n_layer": 2,
        "n_head": 2, "n_inner": 24, "max_trained_positions": 32, "n_positions": 64, "activation_function": "swiglu",
        "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "type_vocab_size": 2,
        "qkv_proj_bias": False, "prenorm": False, "rotary_scaling_factor": None,
    }  # fmt: skip
    encoder = perturbed(Encoder.from_config(published, pooling="mean", seed=3))
    encoder.save(tmp_path)
    ids, mask = documents("nomic_bert")
    expected = perturbed(Encoder.from_config(tiny_content("nomic_bert"), pooling="mean", seed=3))(ids, mask)
    assert np.array_equal(Encoder.load(tmp_path)(ids, mask), expected)
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert {"emb_ln.weight", "encoder.layers.1.attn.Wqkv.weight", "encoder.layers.0.mlp.fc11.weight"} <= {
            *file.keys()
        }
    for name, value in (("moe_every_n_layers", 2), ("prenorm", True), ("rotary_emb_fraction", 0.5)):
        refused(name, Encoder.from_config, {**published, name: value})


@every_architecture
def test_poolings(architecture):
    ids, mask = documents(architecture, (6,))
    last = shared_encoder(architecture, "last")(ids, mask).numpy()
    assert np.abs(last - shared_encoder(architecture, "mean")(ids, mask)).max() > 1e-3
    np.testing.assert_allclose(np.tanh(last), shared_encoder(architecture, "last_tanh")(ids, mask), atol=1e-6)
    first = shared_encoder(architecture, "cls")(ids, mask).numpy()
    assert np.array_equal(first, last) == (architecture == "xlnet")  # its classification token is the last
    highest = shared_encoder(architecture, "max")(ids, mask).numpy()
    assert (highest >= np.maximum(first, last)).all()


@every_architecture
def test_embeddings_do_not_depend_on_padding(architecture):
    encoder = shared_encoder(architecture, pooling="mean")
    ids, mask = documents(architecture, (5, 9))
    wide = np.pad(ids, ((0, 0), (0, 6)), constant_values=33)
    wide_mask = np.pad(mask, ((0, 0), (0, 6)))
    expected = encoder(tf.constant(ids), tf.constant(mask)).numpy()
    np.testing.assert_allclose(encoder(tf.constant(wide), tf.constant(wide_mask)), expected, atol=1e-5)
    np.testing.assert_allclose(encoder(tf.constant(wide), tf.constant(wide_mask > 0)), expected, atol=1e-5)
    alone = encoder(tf.constant(ids[:1, :5]), tf.ones([1, 5], tf.int32))
    np.testing.assert_allclose(alone, expected[:1], atol=1e-5)


@pytest.mark.parametrize("architecture", ["eurobert", "gemma3_text", "qwen3"])
@pytest.mark.parametrize("packed", [True, False])
def test_padding_may_stand_on_the_left(architecture, packed):
    """Where only distances count, as the tokenizers of language models pad."""
    encoder = shared_encoder(architecture, pooling="mean")
    ids, mask = documents(architecture, (5, 9))
    left, left_mask = (np.stack([np.roll(one[0], 4), one[1]]) for one in (ids, mask))
    expected = encoder(ids, mask, packed=packed)
    np.testing.assert_allclose(encoder(left, left_mask, packed=packed), expected, atol=1e-5)


def test_a_causal_encoder_does_not_look_ahead():
    encoder = shared_encoder("qwen3", pooling="cls")
    ids, mask = documents("qwen3", (6,))
    assert np.array_equal(encoder(ids, mask), encoder(np.where(np.arange(6) > 0, 55, ids), mask))


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("qwen3", {"num_key_value_heads": 3}, "num_key_value_heads(.|\n)*a divisor of 4"),
        ("qwen3", {"head_dim": 5}, "head_dim(.|\n)*an even number"),
        ("qwen3", {"rope_theta": 0}, "rope_theta(.|\n)*above 0"),
        ("qwen3", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "without scaling"),
        ("qwen3", {"use_sliding_window": True}, "use_sliding_window(.|\n)*False"),
        ("gemma3_text", {"use_bidirectional_attention": None}, "use_bidirectional_attention(.|\n)*EmbeddingGemma"),
        ("gemma3_text", {"rope_local_base_freq": -1}, "rope_local_base_freq(.|\n)*above 0"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping(.|\n)*None"),
    ],
)
def test_unsupported_options_are_named(architecture, changes, message):
    refused(message, tiny_encoder, architecture, **changes)


def test_keys_of_another_width_are_refused(tmp_path):
    """The joined matrix would have the same size with six heads of queries and one of keys."""
    encoder = tiny_encoder("eurobert")
    encoder.save(tmp_path)
    arrays = torch_weights(encoder, prefix=False)
    query, key, value = (f"layers.0.self_attn.{name}_proj.weight" for name in "qkv")
    arrays[query] = np.concatenate([arrays[query], arrays[key]])
    arrays[key] = arrays[key][:4]
    arrays[value] = arrays[value][:4]
    save_file(arrays, tmp_path / "model.safetensors")
    refused("self_attn.q_proj.weight and .* does not fit config.json", Encoder.load, tmp_path)


READ_BY_ALL_LAYERS = {"relative", "relative_norm", "relative_bias"}  # has gradients for which no optimizer asks


@pytest.mark.parametrize(
    ("case", "layers", "shared"),
    [
        ("bert", "1", "words positions segments embedding_norm"),
        ("deberta-v2 convolution", "half", "words projection embedding_norm relative relative_norm convolution "
         "convolution_norm"),
        ("modernbert", "half", "words embedding_norm"),
        ("mpnet", "2", "words positions embedding_norm relative_bias"),
        ("qwen3", "1", "words"),
    ],
)  # fmt: skip
def test_upper_layers_are_trained_on_the_output_of_the_frozen_ones(case, layers, shared):
    """From ids and from that output come the same embeddings and gradients; nothing frozen has one, or is dropped."""
    dropout = {} if case == "modernbert" else {"hidden_dropout_prob": 0.3}
    encoder, seed = perturbed(tiny_encoder(case, pooling="mean", **dropout)), tf.constant([3, 4], tf.int64)
    encoder.freeze(layers)
    frozen = {name for name in encoder.weights if encoder.is_frozen(name)}
    assert {name.split(".")[0] for name in frozen} - {"layer"} == set(shared.split())
    ids, mask = documents(case)
    states = encoder.frozen_states(ids, mask)
    np.testing.assert_allclose(encoder.embed(states, mask), encoder(ids, mask), atol=1e-5)
    for packed in (True, False):
        found = []
        for given in (ids, states):
            with tf.GradientTape() as tape:
                vectors = encoder(given, mask, training=True, seed=seed, packed=packed)
                loss = tf.reduce_sum(vectors**3)
            gradients = dict(zip(encoder.weights, tape.gradient(loss, encoder.variables), strict=True))
            learned = {name: tf.convert_to_tensor(one) for name, one in gradients.items() if one is not None}
            assert {name.split(".")[0] for name in learned.keys() & frozen} <= READ_BY_ALL_LAYERS
            found.append([vectors, *learned.values()])
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_with_all_layers_trained_the_network_is_applied_as_a_whole():
    """Bit for bit, in training too: nothing stands between the layers."""
    encoder, seed = tiny_encoder("bert", pooling="cls"), tf.constant([3, 4], tf.int64)
    encoder.freeze("all")
    assert len(encoder.trainable_variables) == len(encoder.variables) - 2  # the pooler
    ids, mask = map(tf.constant, documents("bert"))
    operations = TrainingOperations(encoder.config.activation, encoder.config.epsilon, seed, compiled=False)
    net, bert = (
        Forward(encoder.config, encoder.weights, Layout(tf, mask), operations, tf.float32),
        encoder.config.architecture,
    )
    rows = bert.embed(net, ids)
    for number in range(2):
        rows = bert.layer(net, rows, f"layer.{number}.", number)
    expected = tf.reshape(rows, [*mask.shape, encoder.dim])[:, 0]
    np.testing.assert_array_equal(encoder(ids, mask, training=True, seed=seed), expected)


def test_layers_that_cannot_be_frozen():
    refused(["share their weights", "--train-layers all"], tiny_encoder("albert").freeze, "half")
    refused("at most 2, half or all", tiny_encoder("bert").freeze, "3")


@every_architecture
def test_what_is_saved_loads_bit_for_bit(architecture, tmp_path):
    encoder = tiny_encoder(architecture, pooling="max", seed=3)
    encoder.save(tmp_path)
    loaded = Encoder.load(tmp_path)
    assert (loaded.architecture, loaded.pooling, loaded.max_length) == (architecture, "max", encoder.max_length)
    assert len(loaded.variables) == len(encoder.variables) > 10
    for before, after in zip(encoder.variables, loaded.variables, strict=True):
        assert before.shape == after.shape
        assert np.array_equal(before, after), before.name
    ids, mask = documents(architecture)
    assert np.array_equal(loaded(ids, mask), encoder(ids, mask))


@every_architecture
def test_gradients_reach_what_is_listed_as_trainable(architecture):
    encoder = shared_encoder(architecture, pooling="mean")
    trainable = encoder.trainable_variables
    assert len({id(one) for one in trainable}) == len(trainable)
    unused = [one.name for one in encoder.variables if all(one is not other for other in trainable)]
    assert all("pooler" in name or "mask" in name for name in unused), unused
    ids, mask = documents(architecture)

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(ids, mask, training=True) ** 2)
    found = tape.gradient(loss, list(trainable))
    assert all(gradient is not None for gradient in found)
    reached = [float(tf.reduce_sum(tf.abs(tf.convert_to_tensor(gradient)))) for gradient in found]
    assert np.isfinite(reached).all()
    assert min(reached) > 0


@pytest.mark.parametrize("architecture", [*IN_HALF, "xlnet"])
def test_half_precision_gives_float32(architecture):
    ids, mask = documents(architecture)
    expected = shared_encoder(architecture, pooling="mean")(ids, mask).numpy()
    encoder = tiny_encoder(architecture, pooling="mean")
    encoder.compute_in("fp16")
    for embeddings in (encoder(ids, mask), encoder(ids, mask, training=True, seed=tf.constant([1, 2], tf.int64))):
        assert embeddings.dtype == tf.float32
        assert not np.array_equal(embeddings, expected)
        assert np.isfinite(embeddings).all()
    np.testing.assert_allclose(encoder(ids, mask), expected, atol=0.02)
    assert all(one.dtype == tf.float32 for one in encoder.variables)


@pytest.mark.parametrize("architecture", ["bert", *(pytest.param(one, marks=pytest.mark.full) for one in IN_HALF[1:])])
def test_bfloat16_agrees_within_its_precision(architecture):
    encoder = perturbed(tiny_encoder(architecture, pooling="mean"))
    encoder.config = encoder.config.with_dropout(0.0)
    ids, mask = (tf.constant(one) for one in documents(architecture))
    found = {}
    for precision in ("off", "bf16"):
        encoder.compute_in(precision)
        with tf.GradientTape() as tape:
            embeddings = encoder.in_graph(ids, mask, True, tf.constant([1, 2], tf.int64))
            loss = tf.reduce_sum(embeddings**2)
        gradients = [tf.convert_to_tensor(one) for one in tape.gradient(loss, list(encoder.trainable_variables))]
        assert {one.dtype for one in (embeddings, *gradients)} == {tf.float32}
        found[precision] = embeddings.numpy(), float(loss), float(tf.linalg.global_norm(gradients))
    (plain, loss, norm), (half, half_loss, half_norm) = found["off"], found["bf16"]
    assert 0 < np.abs(plain - half).max() < 0.1
    assert half_loss == pytest.approx(loss, rel=0.05)
    assert half_norm == pytest.approx(norm, rel=0.1)


def test_documents_name_every_architecture():
    for page in ("README.md", "docs/explanation/xr-transformer.md"):
        text = re.sub("[-_]", "", (REPOSITORY / page).read_text().lower())
        assert [one for one in ARCHITECTURES if re.sub("[-_]", "", one) not in text] == [], page


def test_an_option_says_whether_it_changes_embeddings():
    with pytest.raises(AssertionError, match="list 'new_option' in OPTIONS"):
        shared_encoder("bert").config.option("new_option", 1)


def test_the_seed_decides_the_weights():
    first, same, other = (tiny_encoder("bert", seed=seed) for seed in (1, 1, 2))
    weights = [[one.numpy() for one in encoder.variables] for encoder in (first, same, other)]
    assert all(np.array_equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(weights[0], weights[2], strict=True))


def test_dropout_only_in_training_and_by_its_seed():
    encoder = shared_encoder("bert")
    ids, mask = documents("bert")
    assert np.array_equal(encoder(ids, mask), encoder(ids, mask))
    assert not np.array_equal(encoder(ids, mask, training=True), encoder(ids, mask, training=True))
    seeds = [tf.constant(seed, tf.int64) for seed in ([1, 2], [1, 2], [1, 3], [2, 2])]
    first, same, *others = (encoder(ids, mask, training=True, seed=seed).numpy() for seed in seeds)
    assert np.array_equal(first, same)
    np.testing.assert_allclose(encoder.in_graph(ids, mask, True, seeds[0]), first, atol=1e-5)
    assert all(not np.array_equal(first, other) for other in others)


def test_dropout_keeps_the_mean_and_the_rate():
    operations = TrainingOperations("gelu", 1e-12, tf.constant([3, 4], tf.int64), compiled=False)
    x = tf.ones([999, 101])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = operations.drop(x, 0.3)
    dropped = round(0.3 * 256) / 256
    assert np.mean(y == 0) == pytest.approx(dropped, abs=0.01)
    np.testing.assert_allclose(np.unique(y), [0, 1 / (1 - dropped)], rtol=1e-6)
    assert np.array_equal(tape.gradient(y, x), y)  # of ones
    assert not np.array_equal(operations.drop(x, 0.3), y), "each call draws other numbers"


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_gradients_of_the_training_operations_are_those_of_plain_ones(activation, compiled):
    rng = np.random.default_rng(0)
    x, y, scale, shift, up = (
        tf.constant(rng.standard_normal(shape).astype(np.float32)) for shape in ((6, 8), (6, 8), 8, 8, (6, 8))
    )
    plain = Operations(activation, 1e-5)
    training = TrainingOperations(activation, 1e-5, tf.zeros([2], tf.int64), compiled)

    def gradients(operations):
        with tf.GradientTape() as tape:
            tape.watch([x, y, scale, shift])
            out = operations.add_and_normalize(x, operations.activate(y), scale, shift)
            out += operations.normalize(y, scale, None)
        return [out, *tape.gradient(out, [x, y, scale, shift], output_gradients=up)]

    for expected, found in zip(gradients(plain), gradients(training), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-6)


@every_architecture
def test_dropout_can_be_switched_off(architecture, tmp_path):
    shared_encoder(architecture).save(tmp_path)
    encoder = Encoder.load(tmp_path, hidden_dropout_prob=0.0)
    ids, mask = documents(architecture)
    np.testing.assert_allclose(encoder(ids, mask, training=True), encoder(ids, mask), atol=1e-6)


def test_too_long_documents_are_refused():
    encoder = shared_encoder("roberta")
    assert encoder.max_length == 32
    ids, mask = documents("roberta", (32,))
    assert np.isfinite(encoder(ids, mask)).all()
    ids, mask = documents("roberta", (33,))
    refused("33 tokens are too long", encoder, ids, mask)


def test_a_document_of_padding_alone_has_a_finite_vector():
    for pooling in ("mean", "max", "last", "cls"):
        encoder = shared_encoder("xlnet", pooling)
        assert np.isfinite(encoder(tf.zeros([2, 4], tf.int32), tf.zeros([2, 4], tf.int32))).all()


def test_a_tokenizer_with_more_tokens_is_refused():
    encoder = shared_encoder("bert")
    encoder.check_tokenizer(60)
    refused("does not belong to the encoder", encoder.check_tokenizer, 61)


def test_a_full_disk_raises_an_error(tmp_path):
    encoder = shared_encoder("bert")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match=r"the weights could not be written: .*File too large"):
            encoder.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_texts_of_many_lengths_are_computed_with_few_sizes(monkeypatch):
    """What the kernels compile a program for is the number of rows of the products."""
    encoder = tiny_encoder("bert", "mean")
    seen = set()
    product = tf.matmul

    def noted(a, b, **how):
        seen.add((tuple(a.shape), tuple(b.shape)) if len(a.shape) == 2 else None)
        return product(a, b, **how)

    monkeypatch.setattr(tf, "matmul", noted)
    shapes = set()
    for lengths in [(length,) for length in range(1, 17)] + [(9, 3, 1), (8, 6, 2), (4, 9, 3)]:
        ids, mask = documents("bert", lengths)
        encoder(tf.constant(ids), tf.constant(mask))
        shapes |= {shape[0][0] for shape in seen - {None}}
    assert shapes == {8, 16}


def test_the_same_vectors_at_the_borders_of_sizes():
    encoder = tiny_encoder("bert", "mean")
    for lengths in [(8,), (9,), (7,), (16, 16, 16, 16, 16, 16, 16, 16), (16,) * 8 + (1,), (13,) * 11]:
        ids, mask = map(tf.constant, documents("bert", lengths))
        np.testing.assert_allclose(encoder(ids, mask), encoder(ids, mask, packed=False), atol=2e-5)
