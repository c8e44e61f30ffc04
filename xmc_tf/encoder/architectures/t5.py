from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from xmc_tf.encoder.architectures.eurobert import EuroBert
from xmc_tf.encoder.architectures.mpnet import BucketAttention, bias_of_distances
from xmc_tf.encoder.network.attention import Tensor
from xmc_tf.encoder.network.config import EncoderConfig, Fields
from xmc_tf.encoder.network.parts import Parts
from xmc_tf.encoder.network.weights import Weight, WeightNames

_FEED_FORWARD = {
    "relu": "relu", "gelu": "gelu", "gated-gelu": "gelu_new", "gated-relu": "relu", "gated-silu": "silu",
}  # fmt: skip


class UnscaledBucketAttention(BucketAttention):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.scale = 1.0


class T5(EuroBert):
    """The encoder of T5 (Raffel et al. 2020, https://arxiv.org/abs/1910.10683), as in sentence-T5.

    Layers normalize their inputs by size and have no biases, and attention adds a bias for the distance, as MPNet's.
    """

    name = "t5"
    prefix = ""
    fields: ClassVar = {
        "hidden_size": "d_model", "head_dim": "d_kv", "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers", "intermediate_size": "d_ff", "max_position_embeddings": "n_positions",
        "layer_norm_eps": "layer_norm_epsilon", "hidden_dropout_prob": "dropout_rate",
        "attention_probs_dropout_prob": "dropout_rate",
    }  # fmt: skip
    defaults = EuroBert.defaults | {
        "vocab_size": 32128, "hidden_size": 512, "head_dim": 64, "num_hidden_layers": 6, "num_attention_heads": 8,
        "intermediate_size": 2048, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512, "layer_norm_eps": 1e-6, "pad_token_id": 0, "feed_forward_proj": "relu",
    }  # fmt: skip
    names = WeightNames(
        layer="encoder.block.{n}.", words="shared", out="layer.0.SelfAttention.o", out_norm="layer.0.layer_norm",
        qkv=("layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v"),
        inner=("layer.1.DenseReluDense.wi_0", "layer.1.DenseReluDense.wi_1"), outer="layer.1.DenseReluDense.wo",
        outer_norm="layer.1.layer_norm", pooler="",
    )  # fmt: skip
    attention = UnscaledBucketAttention

    def config(self, content: Mapping[str, Any], where: str) -> EncoderConfig:
        kind = Fields(self, content, where).value("feed_forward_proj")
        if kind not in _FEED_FORWARD:
            raise Fields(self, content, where).misfit("feed_forward_proj", " or ".join(_FEED_FORWARD), kind)
        found = super().config({**content, "hidden_act": _FEED_FORWARD[kind]}, where)
        return replace(found, content=content)

    def check_rotations(self, fields: Fields) -> None:
        for name in ("relative_attention_num_buckets", "relative_attention_max_distance"):
            if fields.content.get(name) is not None:
                fields.whole(name, 8)

    def names_of(self, config: EncoderConfig) -> WeightNames:
        return self.names if self._is_gated(config) else replace(self.names, inner=("layer.1.DenseReluDense.wi",))

    def _is_gated(self, config: EncoderConfig) -> bool:
        return config.option("feed_forward_proj", self.defaults["feed_forward_proj"]).startswith("gated-")

    def feed_forward_weights(
        self, config: EncoderConfig, own: str, file: str, biased: bool = True, gated: bool = False
    ) -> Iterator[Weight]:
        return super().feed_forward_weights(config, own, file, biased=False, gated=self._is_gated(config))

    def shared_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        yield bias_of_distances("encoder.block.0.layer.0.SelfAttention.relative_attention_bias", config)
        yield from self.size_norm("final_norm", "encoder.final_layer_norm", config.width)

    def inner(self, net: Parts, x: Tensor, layer: str) -> Tensor:
        if self._is_gated(net.config):
            return net.dropped(super().inner(net, x, layer))
        return net.dropped(net.operations.activate(net.dense(x, f"{layer}inner")))

    def finish(self, net: Parts, x: Tensor) -> Tensor:
        return net.dropped(super().finish(net, x))


class Mt5(T5):
    """The encoder of mT5 (Xue et al. 2021, https://arxiv.org/abs/2010.11934): T5 for 101 languages, with gates."""

    name = "mt5"
    defaults = T5.defaults | {
        "vocab_size": 250112, "num_hidden_layers": 8, "num_attention_heads": 6, "intermediate_size": 1024,
        "feed_forward_proj": "gated-gelu",
    }  # fmt: skip
