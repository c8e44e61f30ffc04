from xmc_tf.encoder.architectures.bert import BERT_DEFAULTS, Bert


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
