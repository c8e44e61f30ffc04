"""Tiny encoders of all architectures and their variants, with random weights, and documents for them."""

import functools
from pathlib import Path

import numpy as np

from xmc_tf.encoder import Encoder
from xmc_tf.encoder.architectures import registry

VOCABULARY = 60
LENGTHS = (7, 3, 1, 12)
# Embeddings by PyTorch; see benchmarks/interop/encoders_with_pytorch.py.
EXPECTED = Path(__file__).with_name("expected.json")
_SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
_COMMON = {"vocab_size": VOCABULARY, "initializer_range": 0.2}
_BEHIND_PADDING = {"max_position_embeddings": 34, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
_DEBERTA = {
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
}
_ALBERT = {**_SIZES, "embedding_size": 8, "max_position_embeddings": 32}
_MODERN = {
    **_SIZES, "num_hidden_layers": 4, "max_position_embeddings": 32, "local_attention": 6, "pad_token_id": 2,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "bos_token_id": 3,
    "eos_token_id": 4, "cls_token_id": 3, "sep_token_id": 4, "reference_compile": False,
}  # fmt: skip
_GROUPED = {
    **_SIZES, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32, "pad_token_id": 1,
    "bos_token_id": 3, "eos_token_id": 4, "rope_theta": 250.0,
}  # fmt: skip
_GEMMA = {
    **_GROUPED, "num_hidden_layers": 3, "head_dim": 6, "sliding_window": 6, "sliding_window_pattern": 3,
    "pad_token_id": 0, "use_bidirectional_attention": True, "query_pre_attn_scalar": 9, "rope_local_base_freq": 20.0,
    "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
_T5 = {
    "d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 6, "d_ff": 24, "n_positions": 40, "dropout_rate": 0.1,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9, "is_encoder_decoder": True,
}  # fmt: skip

# The usual form of each architecture under its name; its other forms under its name and a word.
CASES = {
    "bert": {**_SIZES, "max_position_embeddings": 32},
    "bert relu": {**_SIZES, "max_position_embeddings": 32, "hidden_act": "relu", "type_vocab_size": 1},
    "roberta": {**_SIZES, **_BEHIND_PADDING, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "xlm-roberta": {**_SIZES, **_BEHIND_PADDING, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 32},
    "xlnet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "pad_token_id": 5},
    "xlnet clamped": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "pad_token_id": 5, "clamp_len": 4},
    "deberta-v2": _DEBERTA,
    "deberta-v2 positions": {**_DEBERTA, "position_biased_input": True, "type_vocab_size": 2, "norm_rel_ebd": "none"},
    "deberta-v2 unshared": {**_DEBERTA, "share_att_key": False, "pos_att_type": "p2c|c2p", "position_buckets": -1},
    "deberta-v2 convolution": {**_DEBERTA, "conv_kernel_size": 3, "conv_act": "gelu", "embedding_size": 8},
    "deberta-v2 plain": {**_DEBERTA, "relative_attention": False, "position_biased_input": True},
    "electra": {**_SIZES, "embedding_size": 8, "max_position_embeddings": 32},
    "electra wide": {**_SIZES, "embedding_size": 16, "max_position_embeddings": 32},
    "mpnet": {**_SIZES, "max_position_embeddings": 66, "pad_token_id": 1},
    "albert": _ALBERT,
    "albert groups": {**_ALBERT, "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    "modernbert": _MODERN,
    # As transformers 5 writes it, with other layers and rotations than the usual ones.
    "modernbert listed": {
        **{name: value for name, value in _MODERN.items() if "rope" not in name and "global" not in name},
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 200.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
        },
    },
    "nomic_bert": {**_SIZES, "max_position_embeddings": 32},
    "eurobert": _GROUPED,
    "eurobert biased": {**_GROUPED, "num_key_value_heads": None, "attention_bias": True, "mlp_bias": True},
    "qwen3": {**_GROUPED, "head_dim": 6, "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
    "gemma3_text": _GEMMA,
    "gemma3_text listed": {
        **_GEMMA,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "num_key_value_heads": 1,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 200.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
        },
    },
    "t5": _T5,
    "mt5": {**_T5, "feed_forward_proj": "gated-gelu"},
    "modernbert biased": {**_MODERN, "attention_bias": True, "mlp_bias": True, "norm_bias": True},
}
ARCHITECTURES = sorted(registry.ARCHITECTURES)  # each needs a case of its name


def tiny_content(case, **changes):
    """Return the content of config.json for an encoder of a few thousand weights."""
    return {"model_type": case.split(" ")[0], **_COMMON, **CASES[case], **changes}


def tiny_encoder(case, pooling="auto", seed=0, **changes):
    """Return an encoder with random weights."""
    return Encoder.from_config(tiny_content(case, **changes), pooling=pooling, seed=seed)


def perturbed(encoder):
    """Change the weights that are all ones or zeros at first, so that each of them counts."""
    rng = np.random.default_rng(1)
    for variable in encoder.variables:
        before = variable.numpy()
        if before.min() == before.max():
            variable.assign(before + rng.normal(0, 0.1, before.shape).astype(np.float32))
    return encoder


@functools.cache
def shared_encoder(case, pooling="auto"):
    """Return an encoder of seed 0, built once, for tests that leave its weights alone."""
    return tiny_encoder(case, pooling)


def documents(case, lengths=LENGTHS, width=None, seed=0):
    """Return right-padded ids and mask; padding has the padding id."""
    rng = np.random.default_rng(seed)
    width = width or max(lengths)
    pad_id = CASES[case].get("pad_token_id", 0)
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int32)
    # Ids from 10 on: the first ones have special meanings, padding among them.
    ids = np.stack([np.resize(rng.integers(10, VOCABULARY, 40), width) for _ in lengths]).astype(np.int32)
    return np.where(mask > 0, ids, pad_id).astype(np.int32), mask
