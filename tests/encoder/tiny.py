"""Tiny encoders of all architectures, with random weights, and documents for them."""

import functools

import numpy as np
import transformers

from xmc_tf.encoder import Encoder

VOCABULARY = 60
_SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
_COMMON = {"vocab_size": VOCABULARY, "initializer_range": 0.2}
_BEHIND_PADDING = {"max_position_embeddings": 34, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}

CONFIGS = {
    "bert": ("BertConfig", {**_SIZES, "max_position_embeddings": 32}),
    "roberta": ("RobertaConfig", {**_SIZES, **_BEHIND_PADDING}),
    "xlm-roberta": ("XLMRobertaConfig", {**_SIZES, **_BEHIND_PADDING}),
    "distilbert": (
        "DistilBertConfig",
        {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 32},
    ),
    "xlnet": ("XLNetConfig", {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "pad_token_id": 5}),
    "deberta-v2": (
        "DebertaV2Config",
        {
            **_SIZES,
            "max_position_embeddings": 32,
            # As the published checkpoints have it: attention by relative position, in buckets.
            "relative_attention": True,
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
    ),
    "electra": ("ElectraConfig", {**_SIZES, "embedding_size": 8, "max_position_embeddings": 32}),
    "mpnet": ("MPNetConfig", {**_SIZES, "max_position_embeddings": 34, "pad_token_id": 1}),
    "albert": ("AlbertConfig", {**_SIZES, "embedding_size": 8, "max_position_embeddings": 32}),
}
ARCHITECTURES = sorted(CONFIGS)


def tiny_config(architecture, **changes):
    """Return a configuration of a few thousand weights."""
    name, fields = CONFIGS[architecture]
    return getattr(transformers, name)(**{**_COMMON, **fields, **changes})


def tiny_encoder(architecture, pooling="auto", seed=0, **changes):
    """Return an encoder with random weights."""
    return Encoder.from_config(tiny_config(architecture, **changes), pooling=pooling, seed=seed)


@functools.cache
def shared_encoder(architecture, pooling="auto"):
    """Return an encoder of seed 0, built once, for tests that leave its weights alone."""
    if pooling == "auto":
        return tiny_encoder(architecture)
    return Encoder(shared_encoder(architecture).model, pooling)


def documents(architecture, lengths=(7, 3, 1, 12), width=None, seed=0):
    """Return right-padded ids and mask; padding has the padding id."""
    rng = np.random.default_rng(seed)
    width = width or max(lengths)
    pad_id = tiny_config(architecture).pad_token_id or 0
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int32)
    # Ids from 10 on: the first ones have special meanings, padding among them.
    ids = np.stack([np.resize(rng.integers(10, VOCABULARY, 40), width) for _ in lengths]).astype(np.int32)
    return np.where(mask > 0, ids, pad_id).astype(np.int32), mask
