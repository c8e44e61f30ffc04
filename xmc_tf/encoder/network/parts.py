"""The parts of an encoder's network, for one batch, from which architectures build their layers."""

from collections.abc import Mapping
from typing import Any

from xmc_tf.encoder.network.attention import Attention, Layout, Tensor
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weights import scale_of

DOWN, UP = ".down", ".up"  # names of the two matrices of an adapter


class Parts:
    """The weights of a network and the operations on them. Tensors are rows of tokens without padding."""

    embedded: Tensor  # the input of the first layer

    def __init__(
        self, config: EncoderConfig, weights: Mapping[str, Tensor], layout: Layout, operations: Any, dtype: Any
    ) -> None:
        self.ops, self.config, self.weights, self.layout = layout.ops, config, weights, layout
        self.operations, self.dtype = operations, dtype
        self.attend: Attention = config.architecture.attention(config, weights, layout, operations, self.dense, dtype)

    def tokens(self, ids: Tensor) -> Tensor:
        """Return the sums of the embeddings of words, positions and segments that there are."""
        weights, layout, ops = self.weights, self.layout, self.ops
        x = ops.gather(weights["words"], ops.gather(ops.reshape(ids, [-1]), layout.flat))
        if "positions" in weights:
            x += ops.gather(weights["positions"], layout.positions + self.config.first_position)
        if "segments" in weights:
            x += ops.gather(weights["segments"], [0])  # a document is one segment
        return x

    def projected(self, x: Tensor) -> Tensor:
        """Project embeddings to the width of the layers, if the two differ."""
        if "projection.kernel" not in self.weights:
            return x
        return self.ops.cast(self.dense(x, "projection"), self.ops.float32)

    def dense(self, x: Tensor, name: str) -> Tensor:
        kernel, bias = self.weights[f"{name}.kernel"], self.weights.get(f"{name}.bias")
        out = self.operations.dense(x, kernel, bias, self.dtype)
        if (down := self.weights.get(f"{name}{DOWN}")) is None:
            return out
        narrow = self.operations.dense(x, down, None, self.dtype)
        return out + self.operations.dense(narrow, self.weights[f"{name}{UP}"], None, self.dtype)

    def gated(self, x: Tensor, name: str) -> Tensor:
        """Apply a dense layer whose first half of outputs is activated and multiplied with the second half."""
        inner, gate = self.ops.split(self.dense(x, name), 2, axis=1)
        return self.operations.activate(inner) * gate

    def dropped(self, x: Tensor) -> Tensor:
        return self.operations.drop(x, self.config.dropout)

    def normalize(self, x: Tensor, name: str) -> Tensor:
        return self.operations.normalize(x, *self._norm(name))

    def normalize_size(self, x: Tensor, name: str) -> Tensor:
        return self.operations.normalize_size(x, scale_of(self.weights, name))

    def add_and_normalize(self, x: Tensor, y: Tensor, name: str) -> Tensor:
        return self.operations.add_and_normalize(x, y, *self._norm(name))

    def _norm(self, name: str) -> tuple[Tensor, Tensor | None]:
        return self.weights[f"{name}.scale"], self.weights.get(f"{name}.shift")
