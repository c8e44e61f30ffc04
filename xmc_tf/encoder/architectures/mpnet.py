import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from xmc_tf.encoder.architectures.bert import BERT_DEFAULTS
from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.attention import Attention, Tensor
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weights import Weight, WeightNames, table

_MOST = 128  # from this distance on, all are in one bucket


class BucketAttention(Attention):
    """Attention that adds a bias for each head and range of distances to the scores."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        farthest = self.config.max_length
        most = self.config.option("relative_attention_max_distance", _MOST)
        buckets = self.ops.constant(_bucket_of_distances(_buckets(self.config), farthest, most))
        place = self.ops.range(self.layout.width)
        chosen = self.ops.gather(buckets, place[:, None] - place[None, :] + farthest)
        bias = self.ops.gather(self.weights["relative_bias"], chosen)
        self._bias = self.ops.cast(self.ops.transpose(bias, [2, 0, 1])[None], self.dtype)

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        return super().scores(query, key, layer, number) + self._bias


class MpNet(Architecture):
    """MPNet (Song et al. 2020, https://arxiv.org/abs/2004.09297): BERT with biases for distances, without segments."""

    name = "mpnet"
    prefix = "mpnet."
    defaults = BERT_DEFAULTS | {"vocab_size": 30527, "type_vocab_size": 0, "pad_token_id": 1}
    names = WeightNames(
        qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"), out="attention.attn.o",
        out_norm="attention.LayerNorm",
    )  # fmt: skip
    attention = BucketAttention
    pooling = "pooler"

    def first_position(self, pad_id: int) -> int:
        return 2  # its padding id is always 1, regardless of the file

    def shared_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        yield bias_of_distances("encoder.relative_attention_bias", config)
        yield from super().shared_weights(config)


def bias_of_distances(file: str, config: EncoderConfig) -> Weight:
    return table("relative_bias", file, (_buckets(config), config.heads))


def _buckets(config: EncoderConfig) -> Any:
    return config.option("relative_attention_num_buckets", 32)


def _bucket_of_distances(buckets: int, farthest: int, most: int) -> np.ndarray:
    """Return the bucket of each distance between query and key, from ``-farthest`` to ``farthest``."""
    # Half of the buckets for either side; half of these for single distances, the rest for ranges that grow to `most`.
    distance = np.arange(-farthest, farthest + 1)
    half = buckets // 2
    exact = half // 2
    size = np.abs(distance)
    growing = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(exact)) / np.float32(math.log(most / exact))
    large = np.minimum(exact + (growing * np.float32(half - exact)).astype(np.int32), half - 1)
    return (np.where(distance < 0, half, 0) + np.where(size < exact, size, large)).astype(np.int32)
