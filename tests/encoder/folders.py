"""Folders as sentence-transformers writes them, with random weights."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf
from safetensors.numpy import save_file

from tests.data.torch_writer import torch_zip
from tests.encoder.tiny import perturbed, tiny_encoder
from xmc_tf.data.windows import WindowOptions
from xmc_tf.demo.encoder import write_tokenizer
from xmc_tf.encoder import Encoder, TextTokenizer
from xmc_tf.encoder.onnx.encoder import OnnxEncoder, write_encoder
from xmc_tf.pipeline.embeddings import rows_of_length
from xmc_tf.serving.encoder_embeddings import EncoderEmbeddings

EXPECTED = Path(__file__).with_name("expected_folders.json")
LENGTH = 14  # tokens of a text, with special ones and prompt
VOCABULARY = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    "red", "green", "blue", "cold", "warm", "sea", "sky", "tree", "stone", "query", "document", "passage", "title",
    "none", "of", "the", ":", "|", ",", *"abcdefghij", *(f"##{one}" for one in "abcdefghijs"),
]  # fmt: skip
TEXTS = ["red sea", "the tree of stone , cold", "", "Warm blue sky " * 8, "seas abcdef"]
_OLD, _NEW = "sentence_transformers.models.", "sentence_transformers.base.modules."
_MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
_ALL = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_E5 = {"prompts": {"query": "query: ", "passage": "passage: "}}


def dense(inputs, outputs, activation="torch.nn.modules.activation.Tanh", bias=True, **more):
    """Return the configuration of a Dense module."""
    return {"in_features": inputs, "out_features": outputs, "bias": bias, "activation_function": activation, **more}


# The pooling, the modules behind it (None: Normalize), and prompts.
FOLDERS = {
    "mean": (_MEAN, [None], {}),
    "no pooling is true": ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False}, [], {}),
    "all, by older names": ({f"pooling_mode_{one}": True for one in _ALL}, [None], {}),
    "several, by newer names": ({"pooling_mode": ["lasttoken", "weightedmean", "cls"]}, [], {}),
    "dense": (_MEAN, [dense(16, 6), None], {}),
    "two dense, pytorch_model.bin": (
        {"pooling_mode": ["max", "mean"], "include_prompt": True},
        [dense(32, 8, "torch.nn.modules.linear.Identity", bias=False, module_input_name="sentence_embedding"), None,
         dense(8, 5, "torch.nn.modules.activation.GELU")],
        {},
    ),
    "prompts of e5": (_MEAN, [None], _E5),
    "default prompt": (
        _MEAN, [], {"prompts": {"title": "title: none | ", "query": "q"}, "default_prompt_name": "title"}
    ),
    "prompt not pooled": (
        {"pooling_mode": ["cls", "mean", "weightedmean", "lasttoken"], "include_prompt": False}, [dense(64, 7)],
        {"prompts": {"query": "query: ", "document": "title: none | "}, "similarity_fn_name": "dot"},
    ),
}  # fmt: skip


def write_folder(name, folder):
    """Write the folder of a case."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    write_tokenizer(folder)
    perturbed(tiny_encoder("bert", vocab_size=len(VOCABULARY), seed=3)).save(folder)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": LENGTH, "do_lower_case": False})
    return add_modules(folder, *FOLDERS[name], in_bin="bin" in name)


def add_modules(folder, pooling, behind, prompts, in_bin=False):
    """Write the files of modules and prompts beside an encoder that ``Encoder.save`` wrote."""
    (folder / "pooling.json").unlink()
    write_json(folder / "config_sentence_transformers.json", {"__version__": {}, **prompts})
    rng, listed = np.random.default_rng(len(behind)), [{"path": "", "type": f"{_OLD}Transformer"}]
    for number, one in enumerate([{"word_embedding_dimension": 16, **pooling}, *behind], 1):
        kind = "Pooling" if number == 1 else "Normalize" if one is None else "Dense"
        place = folder / f"{number}_{kind}"
        listed.append({"path": place.name, "type": (f"{_NEW}dense." if kind == "Dense" else _OLD) + kind})
        write_json(place / "config.json", one or {})
        if kind == "Dense":
            shape = one["out_features"], one["in_features"]
            weights = {"linear.weight": rng.normal(0, 0.5, shape).astype(np.float32)}
            weights |= {"linear.bias": rng.normal(0, 0.5, shape[0]).astype(np.float32)} if one["bias"] else {}
            if in_bin:
                (place / "pytorch_model.bin").write_bytes(torch_zip(weights))
            else:
                save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
    named = [{"idx": number, "name": str(number), **one} for number, one in enumerate(listed)]
    write_json(folder / "modules.json", named)
    return folder


def write_json(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def in_all_runtimes(folder, place, texts, length=LENGTH):
    """Return embeddings of length 1 by runtime, from the encoder as training saves it in ``place``."""
    encoder, tokenizer = Encoder.load(folder), TextTokenizer.load(folder)
    encoder.leave_out_prompt(tokenizer.nr_before_text)
    encoder.save(place / "saved")
    tokenizer.save(place / "saved")
    encoder, tokenizer = Encoder.load(place / "saved"), TextTokenizer.load(place / "saved")
    served, module = EncoderEmbeddings(encoder, tokenizer, WindowOptions(length)), tf.Module()
    module.tracked = served.tracked
    spec = [tf.TensorSpec([None], tf.string)]
    module.serve = tf.function(lambda text: served.of_text(text).documents, input_signature=spec, autograph=False)
    tf.saved_model.save(module, place / "served")
    write_encoder(place / "saved", place / "onnx")
    tokens = tokenizer.tokenize(texts, length)
    mask = np.array([np.arange(length) < len(one) for one in tokens], np.int32)
    ids = np.array([np.pad(one, (0, length - len(one))) for one in tokens], np.int32)
    loaded = tf.saved_model.load(place / "served")
    return {
        "tensorflow": rows_of_length(1.0, encoder.embed(ids, mask)),
        "onnx": rows_of_length(1.0, OnnxEncoder.load(place / "onnx", threads=1).embed(ids, mask)),
        "served": loaded.serve(tf.constant(texts)).numpy(),
    }
