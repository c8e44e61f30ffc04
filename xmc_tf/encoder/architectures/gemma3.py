from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from xmc_tf.encoder.architectures.eurobert import EuroBert
from xmc_tf.encoder.architectures.qwen3 import Qwen3
from xmc_tf.encoder.network.attention import Tensor
from xmc_tf.encoder.network.config import EncoderConfig, Fields
from xmc_tf.encoder.network.parts import Parts
from xmc_tf.encoder.network.rotary import (
    ALL,
    NEAR,
    LocalRotaryAttention,
    NormalizedHeads,
    check_base,
    check_local_layers,
)
from xmc_tf.encoder.network.weights import Weight

_WINDOW, _SCALAR = 4096, 256  # the defaults of transformers
_ROTATIONS = {"rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0}  # of the layers that see all tokens, others


class Gemma3Attention(NormalizedHeads, LocalRotaryAttention):
    """Rotary attention with normalized queries and keys, of which most layers see only nearby tokens."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.scale = float(self.config.option("query_pre_attn_scalar", _SCALAR)) ** -0.5


class Gemma3Text(Qwen3):
    """Gemma 3 (Kamath et al. 2025, https://arxiv.org/abs/2503.19786) for texts, as EmbeddingGemma uses it.

    All tokens are seen, most layers see only nearby ones, and layers normalize both their inputs and their outputs.
    """

    name = "gemma3_text"
    fields: ClassVar = {**EuroBert.fields, "hidden_act": "hidden_activation"}
    defaults = Qwen3.defaults | {
        "vocab_size": 262208, "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8, "head_dim": 256,
        "intermediate_size": 9216, "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 131072,
        "pad_token_id": 0, "sliding_window": _WINDOW, "query_pre_attn_scalar": _SCALAR,
    }  # fmt: skip
    names = replace(EuroBert.names, outer_norm="pre_feedforward_layernorm")
    attention = Gemma3Attention
    pooling = "mean"

    def check(self, fields: Fields) -> None:
        super().check(fields)
        fields.require("attn_logit_softcapping", None)
        if fields.content.get("use_bidirectional_attention") is not True:
            name = "use_bidirectional_attention"
            raise fields.misfit(name, "True, as in EmbeddingGemma", fields.content.get(name))
        for name in ("sliding_window", "query_pre_attn_scalar"):
            fields.whole(name)

    def check_rotations(self, fields: Fields) -> None:
        check_local_layers(fields)
        for name in _ROTATIONS:
            check_base(fields, name)

    def local_layers(self, config: EncoderConfig) -> list[bool]:
        """Return whether each layer sees only nearby tokens."""
        if (kinds := config.option("layer_types", None)) is not None:
            return [kind == NEAR for kind in kinds]
        every = config.option("sliding_window_pattern", 6)
        return [(number + 1) % every != 0 for number in range(config.layers)]

    def farthest_seen(self, config: EncoderConfig) -> int:
        return config.option("sliding_window", _WINDOW) // 2

    def rotation_bases(self, config: EncoderConfig) -> tuple[float, ...]:
        """Return the bases (theta) of the rotations: for the layers that see all tokens, and for the others."""
        if (ropes := config.option("rope_parameters", None)) is not None:  # of transformers 5
            return float(ropes[ALL]["rope_theta"]), float(ropes[NEAR]["rope_theta"])
        return tuple(float(config.option(name, default)) for name, default in _ROTATIONS.items())

    def layer_weights(self, config: EncoderConfig, number: int, file: str) -> Iterator[Weight]:
        yield from super().layer_weights(config, number, file)
        for part, name in (("attended", "post_attention_layernorm"), ("fed", "post_feedforward_layernorm")):
            yield from self.size_norm(f"layer.{number}.{part}_norm", file + name, config.width)

    def size_norm(self, name: str, file: str, width: int) -> Iterator[Weight]:
        yield Weight(f"{name}.excess", (width,), (f"{file}.weight",))

    def embed(self, net: Parts, ids: Tensor) -> Tensor:
        return net.dropped(net.tokens(ids) * net.config.width**0.5)

    def branch(self, net: Parts, y: Tensor, norm: str) -> Tensor:
        return net.dropped(net.normalize_size(y, norm))
