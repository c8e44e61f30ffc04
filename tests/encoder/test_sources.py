"""Where encoders come from: folders of several kinds, the hub's cache, and what is said when there is none."""

import json
import os
import re
import shutil
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.data.torch_writer import torch_zip
from tests.encoder.other_files import save_as_torch_does, torch_weights
from tests.encoder.tiny import ARCHITECTURES, documents, tiny_encoder
from tests.encoder.vocabularies import wordpiece
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.encoder import Encoder, TextTokenizer, reading
from xmc_tf.encoder.network.config import OPTIONS
from xmc_tf.encoder.reading import read_encoder


@pytest.mark.parametrize(
    ("architecture", "prefix"), [*((one, True) for one in ARCHITECTURES), ("bert", False), ("xlnet", False)]
)
def test_weights_as_torch_saves_them(architecture, prefix, tmp_path):
    encoder = tiny_encoder(architecture, seed=5)
    save_as_torch_does(encoder, tmp_path, prefix=prefix)
    loaded = Encoder.load(tmp_path)
    ids, mask = documents(architecture)
    np.testing.assert_allclose(loaded(ids, mask), encoder(ids, mask), atol=1e-6)
    assert loaded.pooling == encoder.pooling


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_weights_in_pytorchs_own_format(architecture, tmp_path):
    encoder = tiny_encoder(architecture, seed=5)
    path = tmp_path / "pytorch_model.bin"
    save_as_torch_does(encoder, tmp_path, write=lambda weights: path.write_bytes(torch_zip(weights)))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["config.json", "pytorch_model.bin"]
    ids, mask = documents(architecture)
    np.testing.assert_allclose(Encoder.load(tmp_path)(ids, mask), encoder(ids, mask), atol=1e-6)


def test_pytorch_weights_in_several_files(tmp_path):
    encoder = tiny_encoder("bert", seed=5)
    names = {}

    def write(weights):
        for number in range(3):
            part = dict(list(weights.items())[number::3])
            name = f"pytorch_model-0000{number + 1}-of-00003.bin"
            (tmp_path / name).write_bytes(torch_zip(part))
            names.update(dict.fromkeys(part, name))

    save_as_torch_does(encoder, tmp_path, write=write)
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    ids, mask = documents("bert")
    np.testing.assert_allclose(Encoder.load(tmp_path)(ids, mask), encoder(ids, mask), atol=1e-6)
    for wrong in ("../elsewhere.bin", "/etc/passwd", "missing.bin", 7):
        index.write_text(json.dumps({"weight_map": {**names, "x": wrong} if isinstance(wrong, str) else {"x": wrong}}))
        refused(r"names a weight file that is not in the folder|does not list the weight files", Encoder.load, tmp_path)
    for wrong in ("{", "[]", '{"weight_map": 3}'):
        index.write_text(wrong)
        with pytest.raises(
            InputError, match=r"does not list the weight files|is not JSON|expected: a list of the weight files"
        ):
            Encoder.load(tmp_path)


def test_pytorch_weights_that_do_not_fit_or_carry_code(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    save_as_torch_does(
        tiny_encoder("bert"), tmp_path, without="layer.1.", write=lambda w: path.write_bytes(torch_zip(w))
    )
    refused("lacks weights of the encoder", Encoder.load, tmp_path)
    wrong_shape = {"bert.embeddings.word_embeddings.weight": np.ones((3, 5), np.float32)}
    path.write_bytes(torch_zip(wrong_shape))
    refused("lacks weights of the encoder", Encoder.load, tmp_path)
    misshaped = torch_weights(tiny_encoder("bert")) | wrong_shape
    path.write_bytes(torch_zip(misshaped))
    refused(r"embeddings\.word_embeddings\.weight does not fit(.|\n)*\(3, 5\)", Encoder.load, tmp_path)
    path.write_bytes(torch_zip(None, pickled=b"cos\nsystem\n(X\x04\x00\x00\x00truetR."))
    refused(r"the name os\.system", Encoder.load, tmp_path)
    path.write_bytes(torch_zip([1, 2]))
    refused("contains no model weights", Encoder.load, tmp_path)


def test_a_checkpoint_without_pooler_pools_by_its_first_token(tmp_path):
    save_as_torch_does(tiny_encoder("roberta"), tmp_path, without="pooler")
    assert Encoder.load(tmp_path).pooling == "cls"
    assert Encoder.load(tmp_path, pooling="mean").pooling == "mean"
    refused("no weights for a pooler", Encoder.load, tmp_path, pooling="pooler")


def test_pecos_folders(tmp_path):
    encoder = tiny_encoder("bert", pooling="max")
    encoder.save(tmp_path / "text_encoder")
    TextTokenizer.of(wordpiece("bert")).save(tmp_path / "text_tokenizer")
    assert Encoder.load(tmp_path).pooling == "max"
    assert TextTokenizer.load(tmp_path).fingerprint == TextTokenizer.of(wordpiece("bert")).fingerprint
    TextTokenizer.of(wordpiece("bert")).save(tmp_path / "model" / "encoder")
    encoder.save(tmp_path / "model" / "encoder")
    assert Encoder.load(tmp_path / "model").pooling == "max"
    assert TextTokenizer.load(str(tmp_path / "model")).pad_id == 3


def sentence_transformers_files(folder, modes):
    """Write the files that sentence-transformers writes beside the model."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **modes}))


@pytest.fixture
def bert_folder(tmp_path):
    """Return a folder as transformers writes it, without anything about pooling."""
    tiny_encoder("bert").save(tmp_path / "bert")
    (tmp_path / "bert" / "pooling.json").unlink()
    return tmp_path / "bert"


def test_pooling_as_the_files_say(bert_folder):
    assert Encoder.load(bert_folder).pooling == "pooler"
    for key, pooling in (("mean_tokens", "mean"), ("cls_token", "cls"), ("max_tokens", "max"), ("lasttoken", "last")):
        modes = {"pooling_mode_mean_tokens": False, f"pooling_mode_{key}": True}
        sentence_transformers_files(bert_folder, modes)
        assert Encoder.load(bert_folder).pooling == pooling
    assert Encoder.load(bert_folder, pooling="max").pooling == "max"
    sentence_transformers_files(bert_folder, {"pooling_mode": "median"})
    refused("pooling_mode 'median'|\\['median'\\] is not supported", Encoder.load, bert_folder)
    assert Encoder.load(bert_folder, pooling="mean").pooling == "mean"
    refused("unknown pooling 'sum'", Encoder.load, bert_folder, pooling="sum")


# Configurations that fit the weights of a case, but give other embeddings.
_OTHERS = [
    ("bert", {"num_attention_heads": 1}),
    ("bert", {"hidden_act": "relu"}),
    ("bert", {"layer_norm_eps": 0.5}),
    ("roberta", {"pad_token_id": 2}),
    ("albert", {"num_hidden_layers": 1}),
    ("deberta-v2", {"pos_att_type": ["c2p"]}),
    ("deberta-v2 convolution", {"conv_act": "relu"}),
    ("xlnet clamped", {"clamp_len": 2}),
    ("modernbert", {"global_attn_every_n_layers": 2}),
    ("modernbert", {"local_attention": 2}),
]


def _changed(folder, **changes):
    """Return the encoder in a folder after changes of its config.json, which are undone."""
    path = folder / "config.json"
    before = path.read_text()
    path.write_text(json.dumps(json.loads(before) | changes))
    try:
        return read_encoder(folder)
    finally:
        path.write_text(before)


@pytest.mark.parametrize(("case", "changes"), _OTHERS)
def test_a_changed_configuration_of_a_saved_encoder_is_refused(case, changes, tmp_path):
    tiny_encoder(case).save(tmp_path)
    _changed(tmp_path, hidden_dropout_prob=0.3, initializer_range=0.3, transformers_version="9", unknown=1)
    refused("has changed since the encoder was saved", _changed, tmp_path, **changes)


def test_the_checksum_of_a_configuration_covers_all_options():
    source = "".join(path.read_text() for path in Path(reading.__file__).parent.rglob("*.py"))
    assert {*re.findall(r'option\("(\w+)"', source)} - {"embedding_dropout", "summary_type", "summary_use_proj"} <= {
        *OPTIONS
    }


@pytest.mark.parametrize("architecture", [one for one in ARCHITECTURES if one != "albert"])
def test_weights_of_more_layers_than_the_configuration_has_are_refused(architecture, tmp_path):
    encoder = tiny_encoder(architecture)
    encoder.save(tmp_path)
    (tmp_path / "pooling.json").unlink()  # as in folders of others
    last, named = encoder.config.layers - 1, encoder.config.architecture.field("num_hidden_layers")
    refused(rf"does not use(.|\n)*(layers?|block)\.{last}\.", _changed, tmp_path, **{named: last})


def test_t5_loads_beside_its_decoder_and_repeated_words(tmp_path):
    """A published file has the weights of the decoder too, and some have the embeddings of words twice."""
    encoder = tiny_encoder("t5")
    others = dict.fromkeys(["decoder.block.0.layer.0.SelfAttention.q.weight", "lm_head.weight"], np.ones((2, 2)))
    others["encoder.embed_tokens.weight"] = encoder.weights["words"].numpy()
    save_as_torch_does(encoder, tmp_path, write=lambda own: save_file(own | others, tmp_path / "model.safetensors"))
    loaded, given = Encoder.load(tmp_path), documents("t5")
    np.testing.assert_array_equal(loaded(*given), tiny_encoder("t5")(*given))


def test_folders_that_are_no_encoders(tmp_path, bert_folder):
    refused("a path that does not exist", Encoder.load, tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    refused("a file", Encoder.load, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    refused(r"config\.json in it", Encoder.load, tmp_path / "empty")
    refused(r"tokenizer\.json or tokenizer_config\.json or vocab\.txt in it", TextTokenizer.load, tmp_path / "empty")
    weights = bert_folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    refused("cannot be read", Encoder.load, bert_folder)
    weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    refused("git lfs pull", Encoder.load, bert_folder)
    weights.unlink()
    refused("a configuration but no weights", Encoder.load, bert_folder)
    (bert_folder / "pytorch_model.bin").write_bytes(b"PK")
    refused("is damaged or contains", Encoder.load, bert_folder)
    (bert_folder / "config.json").write_text('{"model_type": "gpt2"}')
    refused("unsupported architecture: gpt2", Encoder.load, bert_folder)
    (bert_folder / "config.json").write_text("{")
    refused(r"config\.json is not JSON", Encoder.load, bert_folder)
    (bert_folder / "config.json").write_text("{}")
    (bert_folder / "tokenizer.json").write_text("{}")
    refused(r"the tokenizer in .* cannot be read", TextTokenizer.load, bert_folder)


@pytest.fixture
def offline(monkeypatch):
    """Behave as with HF_HUB_OFFLINE=1 set before the start."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def test_a_name_in_the_cache_loads_offline(offline, tmp_path):
    snapshot = tmp_path / "models--somebody--tiny" / "snapshots" / ("0" * 40)
    tiny_encoder("bert").save(snapshot)
    (snapshot / "pooling.json").unlink()
    TextTokenizer.of(wordpiece("bert")).save(snapshot)
    sentence_transformers_files(snapshot, {"pooling_mode_mean_tokens": True})
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    encoder = Encoder.load("somebody/tiny", cache_dir=str(tmp_path))
    assert encoder.pooling == "mean"
    assert TextTokenizer.load("somebody/tiny", cache_dir=str(tmp_path)).pad_id == 3
    shutil.rmtree(snapshot / "1_Pooling")
    refused("1_Pooling/config.json is missing", Encoder.load, "somebody/tiny", cache_dir=str(tmp_path))
    (snapshot / "modules.json").unlink()
    assert Encoder.load("somebody/tiny", cache_dir=str(tmp_path)).pooling == "pooler"
    (snapshot / "model.safetensors").unlink()
    refused("there is no encoder 'somebody/tiny'", Encoder.load, "somebody/tiny", cache_dir=str(tmp_path))


def test_a_name_that_is_not_in_the_cache(offline, tmp_path):
    for load, part in ((Encoder.load, "encoder"), (TextTokenizer.load, "tokenizer")):
        said = [f"there is no {part} 'somebody/unknown': it is not a folder", "because HF_HUB_OFFLINE is set"]
        refused([*said, "hf download somebody/unknown"], load, "somebody/unknown", cache_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", "[" * 100_000, r"config\.json is nested too deeply"),
        ("config.json", '{"model_type": "bert", "vocab_size": ' + "9" * 5000 + "}", r"config\.json: the number 999"),
        ("config.json", '{"model_type": "bert", "vocab_size": 1e999}', "unsupported value of vocab_size"),
        ("config.json", '{"model_type": "bert", "vocab_size": "many"}', "unsupported value of vocab_size"),
        ("config.json", '{"model_type": "bert", "hidden_size": 1000000, "num_attention_heads": 1}', "does not belong"),
        ("config.json", '{"model_type": "bert", "hidden_size": -1, "num_attention_heads": 1}', "unsupported value of"),
        ("config.json", '{"model_type": "bert", "pad_token_id": -2}', "a whole number of at least -1"),
        ("config.json", '{"model_type": ["bert"]}', "unsupported architecture"),
        ("config.json", '{"model_type": "bert", "position_embedding_type": "relative_key"}', "position_embedding_type"),
        ("config.json", '{"model_type": "bert", "hidden_act": "mish"}', "hidden_act"),
        (
            "config.json",
            '{"model_type": "modernbert", "num_hidden_layers": 2, "layer_types": ["other", 3]}',
            "layer_types",
        ),
        ("config.json", '{"model_type": "modernbert", "rope_parameters": {"full_attention": 3}}', "rope_parameters"),
        ("model.safetensors", "\xff" * 100, "cannot be read"),
    ],
)
def test_damaged_encoder_files(bert_folder, name, content, words):
    (bert_folder / name).write_text(content)
    with pytest.raises(InputError, match=words) as caught:
        Encoder.load(bert_folder)
    assert str(bert_folder) in str(caught.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "anything"])
def test_a_pipe_in_an_encoder_folder_is_not_waited_for(bert_folder, name):
    (bert_folder / "vocab.txt").write_text("[PAD]\n")
    (bert_folder / name).unlink(missing_ok=True)
    os.mkfifo(bert_folder / name)
    for load in (Encoder.load, TextTokenizer.load):
        refused(f"{name} is not a regular file", load, bert_folder)
