"""BERT, and the architectures that differ from it in names and sizes alone."""

from typing import ClassVar

from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weights import WeightNames

# The values of fields that a file may leave out. Other architectures state what differs.
BERT_DEFAULTS = {
    "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}  # fmt: skip


class Bert(Architecture):
    """BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805)."""

    name = "bert"
    prefix = "bert."
    defaults = BERT_DEFAULTS
    pooling = "pooler"

    def pecos_pooling(self, config: EncoderConfig) -> str | None:
        return "pooler"


class Roberta(Bert):
    """RoBERTa (Liu et al. 2019, https://arxiv.org/abs/1907.11692): positions begin after the padding id."""

    name = "roberta"
    prefix = "roberta."
    defaults = BERT_DEFAULTS | {"vocab_size": 50265, "pad_token_id": 1}

    def first_position(self, pad_id: int) -> int:
        return pad_id + 1


class XlmRoberta(Roberta):
    """XLM-RoBERTa (Conneau et al. 2020, https://arxiv.org/abs/1911.02116)."""

    name = "xlm-roberta"
    defaults = BERT_DEFAULTS | {"pad_token_id": 1}


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


class Electra(Architecture):
    """ELECTRA (Clark et al. 2020, https://arxiv.org/abs/2003.10555): BERT with narrower embeddings, no pooler."""

    name = "electra"
    prefix = "electra."
    defaults = BERT_DEFAULTS | {
        "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024, "embedding_size": 128,
    }  # fmt: skip
    names = WeightNames(pooler="")
