from collections.abc import Iterator

from xmc_tf.encoder.architectures.bert import BERT_DEFAULTS
from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weights import WeightNames


class Albert(Architecture):
    """ALBERT (Lan et al. 2020, https://arxiv.org/abs/1909.11942): BERT whose layers share their weights, in groups."""

    name = "albert"
    prefix = "albert."
    defaults = BERT_DEFAULTS | {
        "vocab_size": 30000, "hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384,
        "hidden_act": "gelu_new", "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "embedding_size": 128,
    }  # fmt: skip
    names = WeightNames(
        layer="encoder.albert_layer_groups.{n}.", projection="encoder.embedding_hidden_mapping_in",
        qkv=("attention.query", "attention.key", "attention.value"), out="attention.dense",
        out_norm="attention.LayerNorm", inner=("ffn",), outer="ffn_output", outer_norm="full_layer_layer_norm",
        pooler="pooler",
    )  # fmt: skip
    pooling = "pooler"

    def own_layers(self, config: EncoderConfig) -> int:
        groups, inner = _groups(config)
        return groups * inner

    def layer_names(self, config: EncoderConfig) -> list[str]:
        groups, inner = _groups(config)
        return [
            f"{self.names.layer.format(n=group)}albert_layers.{number}."
            for group in range(groups) for number in range(inner)
        ]  # fmt: skip

    def layer_order(self, config: EncoderConfig) -> list[int]:
        groups, inner = _groups(config)

        def applied() -> Iterator[int]:
            for number in range(config.layers):
                group = int(number / (config.layers / groups))
                yield from range(group * inner, (group + 1) * inner)

        return list(applied())


def _groups(config: EncoderConfig) -> tuple[int, int]:
    """Return the number of groups of layers, and of the layers in each."""
    return config.option("num_hidden_groups", 1), config.option("inner_group_num", 1)
