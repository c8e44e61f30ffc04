from collections.abc import Iterator
from typing import Any, ClassVar

from xmc_tf.encoder.architectures.eurobert import EuroBert
from xmc_tf.encoder.network.attention import ABSENT, Attention
from xmc_tf.encoder.network.config import EncoderConfig, Fields
from xmc_tf.encoder.network.rotary import NormalizedHeads, OneRotation
from xmc_tf.encoder.network.weights import Weight


class CausalAttention(NormalizedHeads, OneRotation):
    """Rotary attention to a token and those before it, with normalized queries and keys."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        place = self.ops.range(self.layout.width)
        later = self.ops.where(place[None, :] > place[:, None], ABSENT, 0.0)
        self.absent += self.ops.cast(later, self.dtype)[None, None]


class Qwen3(EuroBert):
    """Qwen3 (Yang et al. 2025, https://arxiv.org/abs/2505.09388), the language model of Qwen3-Embedding.

    A token sees itself and those before it, so the last one stands for the document.
    """

    name = "qwen3"
    defaults = EuroBert.defaults | {
        "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "head_dim": 128,
        "intermediate_size": 22016, "max_position_embeddings": 32768, "layer_norm_eps": 1e-6, "pad_token_id": -1,
    }  # fmt: skip
    attention: ClassVar[type[Attention]] = CausalAttention
    pooling = "last"

    def check(self, fields: Fields) -> None:
        super().check(fields)
        fields.require("use_sliding_window", None, False)

    def attention_weights(self, config: EncoderConfig, own: str, file: str, biased: bool = True) -> Iterator[Weight]:
        yield from super().attention_weights(config, own, file, biased)
        for part in ("query", "key"):
            yield from self.size_norm(f"{own}{part}_norm", f"{file}self_attn.{part[0]}_norm", config.head_width)
