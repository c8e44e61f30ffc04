from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.config import EncoderConfig

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
