from xmc_tf.encoder.architectures.bert import BERT_DEFAULTS
from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.weights import WeightNames


class Electra(Architecture):
    """ELECTRA (Clark et al. 2020, https://arxiv.org/abs/2003.10555): BERT with narrower embeddings, no pooler."""

    name = "electra"
    prefix = "electra."
    defaults = BERT_DEFAULTS | {
        "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024, "embedding_size": 128,
    }  # fmt: skip
    names = WeightNames(pooler="")
