from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from xmc_tf.encoder.architectures.bert import BERT_DEFAULTS
from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.attention import Tensor
from xmc_tf.encoder.network.config import EncoderConfig, Fields
from xmc_tf.encoder.network.parts import Parts
from xmc_tf.encoder.network.rotary import OneRotation, check_rotation
from xmc_tf.encoder.network.weights import Weight, WeightNames

# Options of the published code that are off in the published models.
_UNUSUAL = (
    "prenorm", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "causal", "parallel_block", "use_rms_norm",
    "rotary_emb_interleaved", "moe_every_n_layers",
)  # fmt: skip


class NomicAttention(OneRotation):
    base = ("rotary_emb_base", 1000.0)


class NomicBert(Architecture):
    """NomicBERT (Nussbaum et al. 2024, https://arxiv.org/abs/2402.01613): BERT with rotary positions and gated layers.

    Files are written in the form in which they were read: transformers' own, or that of the published models.
    """

    name = "nomic_bert"
    prefix = "nomic_bert."
    defaults = BERT_DEFAULTS | {
        "vocab_size": 30528, "hidden_act": "silu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 2048,
    }  # fmt: skip
    names = WeightNames(
        layer="layers.{n}.", qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), out="self_attn.o_proj",
        out_norm="post_attention_layernorm", inner=("mlp.gate_proj", "mlp.up_proj"), outer="mlp.down_proj",
        outer_norm="post_mlp_layernorm", pooler="",
    )  # fmt: skip
    attention = NomicAttention
    pooling = "mean"

    def config(self, content: Mapping[str, Any], where: str) -> EncoderConfig:
        if "n_embd" in content and not isinstance(self, PublishedNomicBert):
            return PublishedNomicBert().config(content, where)
        return super().config(content, where)

    def check(self, fields: Fields) -> None:
        super().check(fields)
        check_rotation(fields, "rotary_emb_base")

    def has_positions(self, content: Mapping[str, Any]) -> bool:
        return False

    def attention_weights(self, config: EncoderConfig, own: str, file: str, biased: bool = False) -> Iterator[Weight]:
        yield from super().attention_weights(config, own, file, biased)

    def feed_forward_weights(
        self, config: EncoderConfig, own: str, file: str, biased: bool = False, gated: bool = True
    ) -> Iterator[Weight]:
        yield from super().feed_forward_weights(config, own, file, biased, gated)

    def inner(self, net: Parts, x: Tensor, layer: str) -> Tensor:
        return net.gated(x, f"{layer}inner")


class PublishedNomicBert(NomicBert):
    """The form of the files of nomic-embed-text-v1 and v1.5, with GPT-2's names of fields."""

    prefix = ""
    fields: ClassVar = {
        "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "intermediate_size": "n_inner", "hidden_dropout_prob": "resid_pdrop", "layer_norm_eps": "layer_norm_epsilon",
        "attention_probs_dropout_prob": "attn_pdrop", "max_position_embeddings": "max_trained_positions",
        "hidden_act": "hidden_act",
    }  # fmt: skip
    other_dropouts = ("embd_pdrop",)
    names = WeightNames(
        layer="encoder.layers.{n}.", embedding_norm="emb_ln", qkv=("attn.Wqkv",), out="attn.out_proj", out_norm="norm1",
        inner=("mlp.fc12", "mlp.fc11"), outer="mlp.fc2", outer_norm="norm2", pooler="",
    )  # fmt: skip

    def check(self, fields: Fields) -> None:
        super().check(fields)
        fields.require("activation_function", None, "swiglu")
        fields.require("rotary_emb_fraction", None, 1, 1.0)
        for name in _UNUSUAL:
            fields.require(name, None, 0, False)
        fields.require("rotary_emb_scale_base", None)
