import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from xmc_tf.encoder.architectures.bert import BERT_DEFAULTS
from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.attention import Attention, Tensor
from xmc_tf.encoder.network.config import EncoderConfig, Fields
from xmc_tf.encoder.network.parts import Parts
from xmc_tf.encoder.network.weights import Weight, WeightNames, dense, norm, table

# The weights of a layer for content-to-position and position-to-content scores.
_PROJECTIONS = {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}


class DisentangledAttention(Attention):
    """Disentangled attention, which adds content-to-position and position-to-content scores."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        config = self.config
        self._parts = _position_parts(config)
        self.scale = 1 / math.sqrt(config.head_width * (1 + len(self._parts)))
        if not config.option("relative_attention", False):
            self._parts = []
        if self._parts:
            table: Tensor = self.ops.convert_to_tensor(self.weights["relative"])
            if _normalizes_positions(config):
                scale, shift = self.weights["relative_norm.scale"], self.weights["relative_norm.shift"]
                table = self.operations.normalize(table, scale, shift)
            self._table = self.operations.drop(table, config.dropout)
            farthest = config.max_length
            places = self.ops.constant(_rows_of_distances(config))
            # Table rows for a query's distance to a key, and for a key's distance to a query, which is its negative.
            self._chosen = {
                "c2p": self.ops.gather(places, self.distances() + farthest),
                "p2c": self.ops.gather(places, farthest - self.distances()),
            }

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        scale = self.ops.cast(self.scale, self.dtype)
        query *= scale
        scores = self.ops.matmul(query, key, transpose_b=True)
        tables = self._tables(layer)
        if "c2p" in tables:
            scores += self.by_distance(self.ops.gather(tables["c2p"], self._chosen["c2p"]), query)
        if "p2c" in tables:
            scaled = key * scale
            found = self.by_distance(self.ops.gather(tables["p2c"], self._chosen["p2c"]), scaled)
            scores += self.ops.transpose(found, [0, 1, 3, 2])
        return scores

    def _tables(self, layer: str) -> dict[str, Tensor]:
        """Return the keys and queries of the layer's relative positions."""
        if self._parts and self.config.option("share_att_key", False):
            query, key, _ = self.split_heads(self.dense(self._table, f"{layer}qkv"), 3)
            found = {"c2p": key, "p2c": query}
            return {part: found[part] for part in self._parts}
        return {part: self.split_heads(self.dense(self._table, layer + _PROJECTIONS[part]))[0] for part in self._parts}


class DebertaV2(Architecture):
    """DeBERTa-v2 and v3 (He et al. 2021, https://arxiv.org/abs/2006.03654), which attend by relative position."""

    name = "deberta-v2"
    prefix = "deberta."
    defaults = BERT_DEFAULTS | {
        "vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24,
        "intermediate_size": 6144, "type_vocab_size": 0, "layer_norm_eps": 1e-7,
    }  # fmt: skip
    names = WeightNames(
        projection="embeddings.embed_proj",
        qkv=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"), pooler="",
    )  # fmt: skip
    attention = DisentangledAttention

    def check(self, fields: Fields) -> None:
        super().check(fields)
        fields.require("conv_groups", None, 1)

    def has_positions(self, content: Mapping[str, Any]) -> bool:
        return bool(content.get("position_biased_input", True))

    def embedding_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        yield from self.token_weights(config)
        yield from norm("embedding_norm", self.names.embedding_norm, config.width)
        if config.embedding_width != config.width:
            yield from dense("projection", (self.names.projection,), config.embedding_width, config.width, biased=False)

    def embed(self, net: Parts, ids: Tensor) -> Tensor:
        """Normalize after the projection, not before it."""
        return net.dropped(net.normalize(net.projected(net.tokens(ids)), "embedding_norm"))

    def attention_weights(self, config: EncoderConfig, own: str, file: str, biased: bool = True) -> Iterator[Weight]:
        yield from super().attention_weights(config, own, file, biased)
        if config.option("relative_attention", False) and not config.option("share_att_key", False):
            for part in _position_parts(config):
                # Only the first version of DeBERTa has no bias for the keys of positions.
                name = _PROJECTIONS[part]
                all_heads = config.heads * config.head_width
                yield from dense(f"{own}{name}", (f"{file}attention.self.{name}",), config.width, all_heads)

    def shared_weights(self, config: EncoderConfig) -> Iterator[Weight]:
        width = config.width
        if config.option("relative_attention", False):
            yield table("relative", "encoder.rel_embeddings", (2 * _span(config), width))
        if _normalizes_positions(config):
            yield from norm("relative_norm", "encoder.LayerNorm", width)
        if size := config.option("conv_kernel_size", 0):
            kernel = ("encoder.conv.conv.weight",)
            yield Weight("convolution.kernel", (size, width, width), kernel, np.transpose, np.transpose)
            yield Weight("convolution.bias", (width,), ("encoder.conv.conv.bias",))
            yield from norm("convolution_norm", "encoder.conv.LayerNorm", width)

    def layer(self, net: Parts, x: Tensor, layer: str, number: int) -> Tensor:
        x = super().layer(net, x, layer, number)
        return self._convolution(net, x) if number == 0 and "convolution.kernel" in net.weights else x

    def _convolution(self, net: Parts, x: Tensor) -> Tensor:
        """Add a convolution over the embeddings of neighboring tokens, and normalize the sum."""
        layout, ops, width = net.layout, net.ops, net.config.width
        there = ops.cast(layout.mask, ops.float32)[:, :, None]
        places = ops.reshape(layout.unpack(net.embedded), [layout.documents, layout.width, width]) * there
        places, kernel, bias = (
            ops.cast(one, net.dtype)
            for one in (places, net.weights["convolution.kernel"], net.weights["convolution.bias"])
        )
        found = ops.nn.bias_add(ops.nn.conv1d(places, kernel, stride=1, padding="SAME"), bias)
        found = net.dropped(layout.pack(ops.reshape(found, [-1, width])))
        found = net.operations.named_activation(net.config.option("conv_act", "tanh"))(found)
        return net.add_and_normalize(x, found, "convolution_norm")


def _position_parts(config: EncoderConfig) -> list[str]:
    """Return which scores by position there are: content to position, position to content."""
    parts = config.option("pos_att_type", ())
    if isinstance(parts, str):
        parts = [part.strip() for part in parts.lower().split("|")]
    return [part for part in _PROJECTIONS if part in parts]


def _normalizes_positions(config: EncoderConfig) -> bool:
    """Return whether the table of relative positions is normalized."""
    return "layer_norm" in [one.strip() for one in str(config.option("norm_rel_ebd", "none")).lower().split("|")]


def _span(config: EncoderConfig) -> int:
    """Return half the number of rows in the table of relative positions."""
    buckets = config.option("position_buckets", -1)
    return buckets if buckets > 0 else _farthest(config)


def _farthest(config: EncoderConfig) -> int:
    """Return the maximum relative distance between tokens."""
    farthest = config.option("max_relative_positions", -1)
    return farthest if farthest > 0 else config.max_length


def _rows_of_distances(config: EncoderConfig) -> np.ndarray:
    """Return the row of the relative-position table for each query-key distance, from ``-max_length`` on."""
    span = _span(config)
    distance = place = np.arange(-config.max_length, config.max_length + 1)
    if (buckets := config.option("position_buckets", -1)) > 0:
        middle = buckets // 2
        size = np.where(np.abs(distance) < middle, middle - 1, np.abs(distance)).astype(np.float32)
        ratio = np.log(size / np.float32(middle)) / np.log(np.float32((_farthest(config) - 1) / middle))
        ranged = np.ceil(ratio * np.float32(middle - 1)) + middle
        place = np.where(size <= middle, distance, ranged * np.sign(distance)).astype(np.int64)
    return np.clip(place + span, 0, 2 * span - 1).astype(np.int32)
