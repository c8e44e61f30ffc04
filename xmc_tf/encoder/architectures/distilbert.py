from typing import ClassVar

from xmc_tf.encoder.architectures.bert import BERT_DEFAULTS
from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weights import WeightNames


class DistilBert(Architecture):
    """DistilBERT (Sanh et al. 2019, https://arxiv.org/abs/1910.01108): BERT without segments and pooler."""

    name = "distilbert"
    prefix = "distilbert."
    fields: ClassVar = {
        "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim", "hidden_act": "activation", "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    }  # fmt: skip
    defaults = BERT_DEFAULTS | {"num_hidden_layers": 6, "type_vocab_size": 0}
    names = WeightNames(
        layer="transformer.layer.{n}.", qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        out="attention.out_lin", out_norm="sa_layer_norm", inner=("ffn.lin1",), outer="ffn.lin2",
        outer_norm="output_layer_norm", pooler="",
    )  # fmt: skip

    def pecos_pooling(self, config: EncoderConfig) -> str | None:
        return "cls"
