from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from xmc_tf.encoder.architectures.bert import BERT_DEFAULTS
from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.attention import Tensor
from xmc_tf.encoder.network.config import EncoderConfig, Fields
from xmc_tf.encoder.network.parts import Parts
from xmc_tf.encoder.network.rotary import ALL, NEAR, LocalRotaryAttention, check_local_layers
from xmc_tf.encoder.network.weights import Weight, WeightNames, norm, table


class ModernBert(Architecture):
    """ModernBERT (Warner et al. 2024, https://arxiv.org/abs/2412.13663), which normalizes the inputs of layers."""

    name = "modernbert"
    prefix = "model."
    fields: ClassVar = {
        "hidden_act": "hidden_activation", "layer_norm_eps": "norm_eps", "hidden_dropout_prob": "mlp_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    }  # fmt: skip
    defaults = BERT_DEFAULTS | {
        "vocab_size": 50368, "num_hidden_layers": 22, "intermediate_size": 1152, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 8192, "type_vocab_size": 0,
        "layer_norm_eps": 1e-5, "pad_token_id": 50283,
    }  # fmt: skip
    other_dropouts = ("embedding_dropout",)
    names = WeightNames(
        layer="layers.{n}.", words="embeddings.tok_embeddings", embedding_norm="embeddings.norm", qkv=("attn.Wqkv",),
        out="attn.Wo", out_norm="attn_norm", inner=("mlp.Wi",), outer="mlp.Wo", outer_norm="mlp_norm", pooler="",
    )  # fmt: skip
    attention = LocalRotaryAttention
    after_layers = ("final_norm",)

    def check(self, fields: Fields) -> None:
        super().check(fields)
        check_local_layers(fields)

    def local_layers(self, config: EncoderConfig) -> list[bool]:
        """Return whether each layer sees only nearby tokens."""
        if (kinds := config.option("layer_types", None)) is not None:  # of transformers 5
            return [kind == NEAR for kind in kinds]
        every = config.option("global_attn_every_n_layers", 3)
        return [number % every != 0 for number in range(config.layers)]

    def farthest_seen(self, config: EncoderConfig) -> int:
        return config.option("local_attention", 128) // 2

    def rotation_bases(self, config: EncoderConfig) -> tuple[float, float]:
        """Return the bases (theta) of the rotations: for the layers that see all tokens, and for the others."""
        if (ropes := config.option("rope_parameters", None)) is not None:  # of transformers 5
            return float(ropes[ALL]["rope_theta"]), float(ropes[NEAR]["rope_theta"])
        theta = float(config.option("global_rope_theta", 160000.0))
        return theta, float(config.content.get("local_rope_theta", 10000.0) or theta)

    def has_positions(self, content: Mapping[str, Any]) -> bool:
        return False

    def embedding_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        yield table("words", self.names.words, (config.vocabulary, config.width))
        yield from norm("embedding_norm", self.names.embedding_norm, config.width, _has_shift(config))

    def layer_weights(self, config: EncoderConfig, number: int, file: str) -> Iterator[Weight]:
        own, names, width, shift = f"layer.{number}.", self.names, config.width, _has_shift(config)
        yield from self.attention_weights(config, own, file, biased=config.option("attention_bias", False))
        if number:  # the first layer does not normalize again
            yield from norm(f"{own}out_norm", file + names.out_norm, width, shift)
        biased = config.option("mlp_bias", False)
        yield from self.feed_forward_weights(config, own, file, biased, gated=True)
        yield from norm(f"{own}outer_norm", file + names.outer_norm, width, shift)

    def shared_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        yield from norm("final_norm", "final_norm", config.width, _has_shift(config))

    def embed(self, net: Parts, ids: Tensor) -> Tensor:
        x = net.normalize(net.tokens(ids), "embedding_norm")
        return net.operations.drop(x, net.config.option("embedding_dropout", 0.0))

    def layer(self, net: Parts, x: Tensor, layer: str, number: int) -> Tensor:
        """Apply a layer that normalizes its inputs."""
        seen = net.normalize(x, f"{layer}out_norm") if f"{layer}out_norm.scale" in net.weights else x
        attended = net.dense(net.attend(seen, layer, number), f"{layer}out")
        x += net.ops.cast(net.operations.drop(attended, net.config.attention_dropout), net.ops.float32)
        inner = net.dropped(net.gated(net.normalize(x, f"{layer}outer_norm"), f"{layer}inner"))
        return x + net.ops.cast(net.dense(inner, f"{layer}outer"), net.ops.float32)

    def finish(self, net: Parts, x: Tensor) -> Tensor:
        return net.normalize(x, "final_norm")


def _has_shift(config: EncoderConfig) -> bool:
    return bool(config.option("norm_bias", False))
