"""Attention within a batch: what BERT's needs, and what attention by distance shares."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from xmc_tf.encoder.network.config import EncoderConfig

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
        self.key_heads = config.architecture.key_heads(config)
        absent = (1.0 - self.ops.cast(layout.mask, self.ops.float32)) * ABSENT
        self.absent = self.ops.cast(absent, dtype)[:, None, None, :]

    def __call__(self, x: Tensor, layer: str, number: int) -> Tensor:
        """Return the attention output of each token: rows of ``heads * head_width`` numbers."""
        # `layer` is the prefix of the names of the layer's weights.
        query, key, value = self.heads(self.layout.unpack(self.dense(x, f"{layer}qkv")))
        scores = self.scores(query, key, layer, number) + self.absent
        shares = self.operations.drop(self.ops.nn.softmax(scores), self.config.attention_dropout)
        found = self.ops.transpose(self.products(shares, value, self.config.head_width), [0, 2, 1, 3])
        return self.layout.pack(self.ops.reshape(found, [-1, self.config.heads * self.config.head_width]))

    def heads(self, places: Tensor) -> list[Tensor]:
        """Split rows into queries, keys and values, each ``[documents, heads, tokens, head_width]``."""
        layout, config, of_keys = self.layout, self.config, self.key_heads
        shape = [layout.documents, layout.width, config.heads + 2 * of_keys, config.head_width]
        # Split, not indexed: the gradient of an index fills and adds whole tensors.
        every = self.ops.transpose(self.ops.reshape(places, shape), [0, 2, 1, 3])
        return self.ops.split(every, [config.heads, of_keys, of_keys], axis=1)

    def products(self, rows: Tensor, shared: Tensor, width: Any, transpose_b: bool = False) -> Tensor:
        """Multiply each head's rows with its matrix, which a group of heads may share; the products have a width."""
        if self.key_heads == self.config.heads:
            return self.ops.matmul(rows, shared, transpose_b=transpose_b)
        # The rows of the heads of a group become those of one matrix, so that nothing is repeated.
        documents, tokens = self.layout.documents, self.layout.width
        inner = self.config.head_width if transpose_b else tokens
        grouped = self.ops.reshape(rows, [documents, self.key_heads, -1, inner])
        found = self.ops.matmul(grouped, shared, transpose_b=transpose_b)
        return self.ops.reshape(found, [documents, self.config.heads, tokens, width])

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        """Return the attention scores ``[documents, heads, tokens, tokens]``."""
        return self.products(query * self.ops.cast(self.scale, self.dtype), key, self.layout.width, transpose_b=True)

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
