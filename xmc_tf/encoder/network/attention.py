"""Attention within a batch, and how each architecture encodes the distance between tokens."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weight_names import deberta_farthest, deberta_norms, deberta_span

# Added to the attention scores of padding. Half precision can represent it.
ABSENT = -10_000.0

Tensor = Any  # of TensorFlow, or of an ONNX graph


class Layout:
    """The arrangement of a batch's tokens as rows of one matrix. This layout keeps padding, so no row has to move."""

    def __init__(self, ops: Any, mask: Tensor) -> None:
        self.ops, self.mask = ops, mask
        shape = ops.shape(mask)
        self.documents, self.width = shape[0], shape[1]
        self.flat = ops.range(ops.size(mask))  # the place of each row in the flattened mask
        self.positions = self.flat % self.width

    def pack(self, places: Tensor) -> Tensor:
        """Select the rows of the layout from a matrix ``[documents * tokens, …]``."""
        return places

    def unpack(self, rows: Tensor) -> Tensor:
        """Return the rows in the shape ``[documents * tokens, …]``; the content at padding is arbitrary."""
        return rows


class Attention:
    """Scaled dot-product attention of BERT and similar models, for one batch."""

    def __init__(
        self,
        config: EncoderConfig,
        weights: Mapping[str, Tensor],
        layout: Layout,
        operations: Any,
        dense: Callable[[Tensor, str], Tensor],
        dtype: Any,
    ) -> None:
        self.ops = layout.ops
        self.config, self.weights, self.layout, self.operations = config, weights, layout, operations
        self.dense, self.dtype = dense, dtype
        self.scale = 1 / math.sqrt(config.head_width)
        absent = (1.0 - self.ops.cast(layout.mask, self.ops.float32)) * ABSENT
        self.absent = self.ops.cast(absent, dtype)[:, None, None, :]

    def __call__(self, x: Tensor, layer: str, number: int) -> Tensor:
        """Return the attention output of each token: rows of ``heads * head_width`` numbers."""
        # `layer` is the prefix of the names of the layer's weights.
        query, key, value = self.heads(self.layout.unpack(self.dense(x, f"{layer}qkv")), 3)
        scores = self.scores(query, key, layer, number) + self.absent
        shares = self.operations.drop(self.ops.nn.softmax(scores), self.config.attention_dropout)
        found = self.ops.transpose(self.ops.matmul(shares, value), [0, 2, 1, 3])
        return self.layout.pack(self.ops.reshape(found, [-1, self.config.heads * self.config.head_width]))

    def heads(self, places: Tensor, parts: int) -> list[Tensor]:
        """Split rows into parts, such as queries and keys; each part is ``[documents, heads, tokens, head_width]``."""
        layout, config = self.layout, self.config
        shape = [layout.documents, layout.width, parts, config.heads, config.head_width]
        # Unstacked, not indexed: the gradient of an index fills and adds whole tensors.
        return self.ops.unstack(self.ops.transpose(self.ops.reshape(places, shape), [2, 0, 3, 1, 4]), num=parts)

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        """Return the attention scores ``[documents, heads, tokens, tokens]``."""
        return self.ops.matmul(query * self.ops.cast(self.scale, self.dtype), key, transpose_b=True)

    def by_distance(self, table: Tensor, places: Tensor) -> Tensor:
        """Return the products of tokens and table rows for their distances: ``[documents, heads, tokens, tokens]``."""
        # The table is [2 * tokens, heads, head_width], in the order of `distances`.
        products = self.ops.matmul(places, self.ops.transpose(table, [1, 2, 0])[None])
        width = self.layout.width
        # Distance i - j stands in row i at place T - 1 - i + j: rows shorter by one move it to column j.
        flat = self.ops.reshape(products, [-1, 2 * width * width])[:, width - 1 : width - 1 + width * (2 * width - 1)]
        columns = self.ops.reshape(flat, [-1, width, 2 * width - 1])[:, :, :width]
        return self.ops.reshape(columns, [self.layout.documents, self.config.heads, width, width])

    def distances(self) -> Tensor:
        """Return the distances between two tokens in descending order: T - 1 to -T, of which the last never occurs."""
        return self.ops.range(self.layout.width - 1, -self.layout.width - 1, -1)

    def split_heads(self, rows: Tensor, parts: int = 1) -> list[Tensor]:
        """Split the rows of a table into parts, each ``[rows, heads, head_width]``."""
        shape = [-1, parts, self.config.heads, self.config.head_width]
        return self.ops.unstack(self.ops.reshape(rows, shape), num=parts, axis=1)


class BucketAttention(Attention):
    """MPNet's attention, which adds a bias for each head and range of distances to the scores."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        farthest = self.config.max_length
        buckets = self.ops.constant(_mpnet_buckets(self.config.option("relative_attention_num_buckets", 32), farthest))
        place = self.ops.range(self.layout.width)
        chosen = self.ops.gather(buckets, place[:, None] - place[None, :] + farthest)
        bias = self.ops.gather(self.weights["relative_bias"], chosen)
        self._bias = self.ops.cast(self.ops.transpose(bias, [2, 0, 1])[None], self.dtype)

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        return super().scores(query, key, layer, number) + self._bias


class DisentangledAttention(Attention):
    """DeBERTa's disentangled attention: it adds content-to-position and position-to-content scores."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        config = self.config
        parts = config.option("pos_att_type", ())
        self._parts = [one for one in ("c2p", "p2c") if one in parts]
        self.scale = 1 / math.sqrt(config.head_width * (1 + len(self._parts)))
        if not config.option("relative_attention", False):
            self._parts = []
        if self._parts:
            table: Tensor = self.ops.convert_to_tensor(self.weights["relative"])
            if "layer_norm" in deberta_norms(config):
                scale, shift = self.weights["relative_norm.scale"], self.weights["relative_norm.shift"]
                table = self.operations.normalize(table, scale, shift)
            self._table = self.operations.drop(table, config.dropout)
            farthest = config.max_length
            places = self.ops.constant(_deberta_places(config, deberta_farthest(config), deberta_span(config)))
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
        names = {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}
        return {part: self.split_heads(self.dense(self._table, layer + names[part]))[0] for part in self._parts}


class XlnetAttention(Attention):
    """XLNet's attention, which also scores distances and whether two tokens belong to the same segment."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        config, mask = self.config, self.layout.mask
        distances = self.ops.cast(self.distances(), self.ops.float32)
        if (limit := config.option("clamp_len", -1)) > 0:
            distances = self.ops.clip_by_value(distances, -float(limit), float(limit))
        frequencies = 1 / 10000 ** (np.arange(0, config.width, 2, dtype=np.float32) / config.width)
        angles = distances[:, None] * self.ops.constant(frequencies, self.ops.float32)[None, :]
        table = self.ops.concat([self.ops.sin(angles), self.ops.cos(angles)], axis=1)
        self._table = self.operations.drop(table, config.dropout)
        # The classification token is the last and has its own segment, as has padding.
        place = self.ops.range(self.layout.width)[None, :]
        last = place == self.ops.reduce_sum(mask, axis=1, keepdims=True) - 1
        segment = self.ops.where(mask == 0, 3, self.ops.where(last, 2, 0))
        self._other = self.ops.cast(segment[:, None, :, None] != segment[:, None, None, :], self.dtype)

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        of_distances = self.split_heads(self.dense(self._table, f"{layer}r"))[0]
        contents = self.ops.matmul(query + self._bias(f"{layer}r_w_bias"), key, transpose_b=True)
        distances = self.by_distance(of_distances, query + self._bias(f"{layer}r_r_bias"))
        embedded = self.ops.cast(self.ops.transpose(self.weights[f"{layer}seg_embed"], [1, 2, 0]), self.dtype)[None]
        segments = self.ops.matmul(query + self._bias(f"{layer}r_s_bias"), embedded)
        same, other = self.ops.split(segments, 2, axis=3)
        scores = contents + distances + same + (other - same) * self._other
        return scores * self.ops.cast(self.scale, self.dtype)

    def _bias(self, name: str) -> Tensor:
        return self.ops.cast(self.weights[name], self.dtype)[None, :, None, :]


class RotaryAttention(Attention):
    """ModernBERT's attention, which rotates queries and keys by position; most layers see only nearby tokens."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._local = self.config.local_layers
        place = self.ops.range(self.layout.width)
        near = self.ops.abs(place[:, None] - place[None, :]) <= self.config.option("local_attention", 128) // 2
        self._far = self.ops.cast(self.ops.where(near, 0.0, ABSENT), self.dtype)[None, None]
        self._rotations = [self._rotation(theta) for theta in self.config.rotations]

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        local = self._local[number]
        cosine, sine = self._rotations[local]
        query, key = (one * cosine + self._half_turned(one) * sine for one in (query, key))
        scores = super().scores(query, key, layer, number)
        return scores + self._far if local else scores

    def _rotation(self, theta: float) -> tuple[Tensor, Tensor]:
        each = self.config.head_width
        frequencies = 1 / np.float32(theta) ** (np.arange(0, each, 2, dtype=np.float32) / np.float32(each))
        place = self.ops.cast(self.ops.range(self.layout.width), self.ops.float32)[:, None]
        angles = place * self.ops.constant(frequencies, self.ops.float32)[None]
        angles = self.ops.concat([angles, angles], axis=1)[None, None]
        return self.ops.cast(self.ops.cos(angles), self.dtype), self.ops.cast(self.ops.sin(angles), self.dtype)

    def _half_turned(self, x: Tensor) -> Tensor:
        first, second = self.ops.split(x, 2, axis=-1)
        return self.ops.concat([-second, first], axis=-1)


ATTENTIONS: dict[str, type[Attention]] = {
    "mpnet": BucketAttention,
    "deberta-v2": DisentangledAttention,
    "xlnet": XlnetAttention,
    "modernbert": RotaryAttention,
}


def _mpnet_buckets(buckets: int, farthest: int) -> np.ndarray:
    """Return the bucket of each distance between query and key, from ``-farthest`` to ``farthest``."""
    # Half of the buckets for either side; half of these for single distances, the rest for ranges that grow up to 128.
    distance = np.arange(-farthest, farthest + 1)
    half = buckets // 2
    exact = half // 2
    size = np.abs(distance)
    growing = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(exact)) / np.float32(math.log(128 / exact))
    large = np.minimum(exact + (growing * np.float32(half - exact)).astype(np.int32), half - 1)
    return (np.where(distance < 0, half, 0) + np.where(size < exact, size, large)).astype(np.int32)


def _deberta_places(config: EncoderConfig, farthest_bucket: int, span: int) -> np.ndarray:
    """Return the row of the relative-position table for each query-key distance, from ``-max_length`` on."""
    distance = place = np.arange(-config.max_length, config.max_length + 1)
    if (buckets := config.option("position_buckets", -1)) > 0:
        middle = buckets // 2
        size = np.where(np.abs(distance) < middle, middle - 1, np.abs(distance)).astype(np.float32)
        ratio = np.log(size / np.float32(middle)) / np.log(np.float32((farthest_bucket - 1) / middle))
        ranged = np.ceil(ratio * np.float32(middle - 1)) + middle
        place = np.where(size <= middle, distance, ranged * np.sign(distance)).astype(np.int64)
    return np.clip(place + span, 0, 2 * span - 1).astype(np.int32)
