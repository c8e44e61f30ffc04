"""Adapters of low rank: what they train, what is saved, and published ones of peft."""

import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

from tests.encoder.tiny import CASES, documents, tiny_encoder
from tests.refusals import refused
from xmc_tf.encoder import Encoder
from xmc_tf.encoder.adapters import CONFIG, WEIGHTS, is_adapter

RANK = 3
# What peft 0.21 writes, whose embeddings with such a folder differ from ours by less than 1e-6.
OF_PEFT = {
    "peft_type": "LORA", "bias": "none", "fan_in_fan_out": False, "init_lora_weights": True, "loftq_config": {},
    "megatron_core": "megatron.core", "modules_to_save": None, "qalora_group_size": 16, "use_dora": False,
    "lora_dropout": 0.1, "target_modules": ["query", "dense"], "rank_pattern": {}, "task_type": "FEATURE_EXTRACTION",
}  # fmt: skip
ONE_OF_EACH = [case for case in CASES if " " not in case]


def adapted(case, seed=0, **changes):
    """Return an encoder with adapters whose products are not zero."""
    encoder = tiny_encoder(case, **changes)
    encoder.adapt(RANK, seed)
    draw = np.random.default_rng(seed)
    for name, variable in encoder.weights.items():
        if is_adapter(name):
            variable.assign(draw.normal(size=variable.shape).astype(np.float32) * 0.2)
    return encoder


@pytest.mark.parametrize("case", ONE_OF_EACH)
def test_only_adapters_have_gradients_and_saved_encoders_have_none(case, tmp_path):
    encoder = adapted(case)
    ids, mask = documents(case)
    names = {id(variable): name for name, variable in encoder.weights.items()}
    trained = [names[id(variable)] for variable in encoder.trainable_variables]
    assert trained
    assert all(is_adapter(name) or name.startswith("pooler.") for name in trained)
    with tf.GradientTape() as tape:
        found = encoder(ids, mask, training=False)
        loss = tf.reduce_sum(found * tf.range(encoder.dim, dtype=tf.float32))
    gradients = tape.gradient(loss, encoder.trainable_variables)
    assert all(gradient is not None and np.abs(gradient).max() > 0 for gradient in gradients)
    encoder.save(tmp_path / "encoder")
    loaded = Encoder.load(tmp_path / "encoder")
    assert not any(map(is_adapter, loaded.weights))
    np.testing.assert_allclose(loaded(ids, mask), found, atol=2e-5)
    before = tiny_encoder(case)
    differ = [name for name in before.weights if np.abs(before.weights[name] - loaded.weights[name]).max() > 1e-6]
    assert differ == [name for name in before.weights if f"{name.removesuffix('kernel')}down" in encoder.weights]
    for name in differ:
        assert np.linalg.matrix_rank(np.asarray(before.weights[name] - loaded.weights[name]), 1e-4) <= RANK


def test_new_adapters_change_nothing_and_depend_on_the_seed():
    ids, mask = documents("bert")
    plain, one, other = (tiny_encoder("bert") for _ in range(3))
    one.adapt(RANK, 1)
    other.adapt(RANK, 2)
    np.testing.assert_array_equal(one(ids, mask), plain(ids, mask))
    down = next(name for name in one.weights if name.endswith("down"))
    assert np.abs(one.weights[down] - other.weights[down]).max() > 0
    plain.adapt(0, 1)
    assert not any(map(is_adapter, plain.weights))


def test_gradients_are_finite_differences():
    encoder = adapted("bert")
    ids, mask = documents("bert")
    weights = np.random.default_rng(3).normal(size=(len(ids), encoder.dim)).astype(np.float32)

    def loss():
        return tf.reduce_sum(encoder(ids, mask, training=False) * weights)

    for variable in (encoder.weights["layer.0.qkv.down"], encoder.weights["layer.1.outer.up"]):
        with tf.GradientTape() as tape:
            value = loss()
        gradient, step = tape.gradient(value, variable).numpy(), 1e-2
        for place in [(0, 0), (1, 2), (variable.shape[0] - 1, variable.shape[1] - 1)]:
            values = variable.numpy()
            ends = []
            for sign in (1, -1):
                moved = values.copy()
                moved[place] += sign * step
                variable.assign(moved)
                ends.append(float(loss()))
            variable.assign(values)
            assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(gradient[place], rel=0.02, abs=2e-3)


def test_lower_layers_stay_frozen():
    encoder = tiny_encoder("bert")
    encoder.freeze("1")
    encoder.adapt(RANK, 0)
    assert {name.split(".")[1] for name in encoder.weights if is_adapter(name)} == {"1"}


def published(folder, **options):
    """Write adapters for the queries of a BERT and for its last matrix, as peft does; return the sums by hand."""
    base = tiny_encoder("bert")
    base.save(folder / "base")
    draw, arrays = np.random.default_rng(0), {}
    for module, outputs, inputs in (
        ("encoder.layer.0.attention.self.query", 16, 16), ("encoder.layer.1.output.dense", 16, 24),
    ):  # fmt: skip
        arrays[f"base_model.model.{module}.lora_A.weight"] = draw.normal(size=(2, inputs)).astype(np.float32)
        arrays[f"base_model.model.{module}.lora_B.weight"] = draw.normal(size=(outputs, 2)).astype(np.float32)
    (folder / "adapters").mkdir()
    save_file(arrays, folder / "adapters" / WEIGHTS)
    content = {"base_model_name_or_path": str(folder / "base"), "lora_alpha": 6, "r": 2} | OF_PEFT | options
    (folder / "adapters" / CONFIG).write_text(json.dumps(content))
    query, last = (b @ a for a, b in zip(*(iter(arrays.values()),) * 2, strict=True))
    values = {name: variable.numpy() for name, variable in base.weights.items()}
    return values, query, last


@pytest.mark.parametrize(("options", "scale"), [({}, 3.0), ({"use_rslora": True}, 6 / np.sqrt(2))])
def test_published_adapters_are_added(tmp_path, options, scale):
    values, query, last = published(tmp_path, **options)
    found = Encoder.load(tmp_path / "adapters").weights
    values["layer.0.qkv.kernel"][:, :16] += scale * query.T
    values["layer.1.outer.kernel"] += scale * last.T
    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"peft_type": "IA3"}, "peft_type"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"an_option_of_tomorrow": [1]}, "an_option_of_tomorrow"),
        ({"modules_to_save": ["classifier"]}, "modules_to_save"),
        ({"lora_alpha": "much"}, "lora_alpha"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path"),
    ],
)
def test_other_adapters_are_refused_by_name(tmp_path, options, said):
    published(tmp_path, **options)
    refused(said, Encoder.load, tmp_path / "adapters")


@pytest.mark.parametrize("content", [None, b"rubbish"])
def test_adapters_that_cannot_be_read_are_named(tmp_path, content):
    published(tmp_path)
    path = tmp_path / "adapters" / WEIGHTS
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    refused(f"the adapters {path} cannot be read", Encoder.load, tmp_path / "adapters")


def test_a_rank_larger_than_a_matrix_is_refused():
    refused("--lora-rank 17 is larger", tiny_encoder("bert").adapt, 17, 0)
