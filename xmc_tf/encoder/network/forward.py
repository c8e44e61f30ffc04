"""The forward pass of an encoder's network, shared by all architectures and runtimes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from xmc_tf.encoder.network.attention import ATTENTIONS, Attention, Layout, Tensor
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weight_names import layer_order

_LOWEST = float(np.finfo(np.float32).min)


class Forward:
    def __init__(
        self, config: EncoderConfig, weights: Mapping[str, Tensor], layout: Layout, operations: Any, dtype: Any
    ) -> None:
        self._ops, self._config, self._weights, self._layout = layout.ops, config, weights, layout
        self._operations, self._dtype = operations, dtype
        kind = ATTENTIONS.get(config.architecture, Attention)
        self._attend = kind(config, weights, layout, operations, self._dense, dtype)

    def states(self, ids: Tensor) -> Tensor:
        """Return the hidden states of tokens, float32 [rows, width], given int32 ids [documents, tokens]."""
        config = self._config
        x = embedded = self._embed(ids)
        before = config.architecture == "modernbert"
        for number, shared in enumerate(layer_order(config)):
            layer = f"layer.{shared}."
            x = self._layer_norm_before(x, layer, number) if before else self._layer_norm_after(x, layer, number)
            if number == 0 and "convolution.kernel" in self._weights:
                x = self._convolution(embedded, x)
        if before:
            return self._normalize(x, "final_norm")
        return self._operations.drop(x, config.dropout) if config.architecture == "xlnet" else x

    def embeddings(self, ids: Tensor, pooling: str) -> Tensor:
        """Return the embeddings of documents, float32 [documents, width]; ids at padding are ignored."""
        layout, config = self._layout, self._config
        rows = self.states(self._ops.where(layout.mask > 0, ids, config.pad_id))
        states = self._ops.reshape(layout.unpack(rows), [layout.documents, layout.width, config.width])
        if pooling == "pooler":
            return self.pooler(states[:, 0])
        return _pool(self._ops, pooling, states, layout.mask, config.architecture == "xlnet")

    def pooler(self, first: Tensor) -> Tensor:
        return self._ops.tanh(self._ops.cast(self._dense(first, "pooler"), self._ops.float32))

    def _embed(self, ids: Tensor) -> Tensor:
        config, weights, layout = self._config, self._weights, self._layout
        x = self._ops.gather(weights["words"], self._ops.gather(self._ops.reshape(ids, [-1]), layout.flat))
        if "positions" in weights:
            x += self._ops.gather(weights["positions"], layout.positions + config.first_position)
        if "segments" in weights:
            x += self._ops.gather(weights["segments"], [0])  # a document is one segment
        kind = config.architecture
        if kind == "deberta-v2":  # normalizes after the projection
            return self._dropped(self._normalize(self._projected(x), "embedding_norm"))
        if kind != "xlnet":
            x = self._normalize(x, "embedding_norm")
        rate = config.option("embedding_dropout", 0.0) if kind == "modernbert" else config.dropout
        return self._projected(self._operations.drop(x, rate))

    def _projected(self, x: Tensor) -> Tensor:
        if "projection.kernel" not in self._weights:
            return x
        return self._ops.cast(self._dense(x, "projection"), self._ops.float32)

    def _layer_norm_after(self, x: Tensor, layer: str, number: int) -> Tensor:
        """Apply a layer that normalizes after each residual sum, as in BERT and most other models."""
        attended = self._dropped(self._dense(self._attend(x, layer, number), f"{layer}out"))
        x = self._add_and_normalize(x, attended, f"{layer}out_norm")
        inner = self._operations.activate(self._dense(x, f"{layer}inner"))
        if self._config.architecture == "xlnet":
            inner = self._dropped(inner)
        return self._add_and_normalize(x, self._dropped(self._dense(inner, f"{layer}outer")), f"{layer}outer_norm")

    def _layer_norm_before(self, x: Tensor, layer: str, number: int) -> Tensor:
        """Apply a layer that normalizes its inputs and has a gated inner layer, as in ModernBERT."""
        config, drop = self._config, self._operations.drop
        seen = self._normalize(x, f"{layer}out_norm") if f"{layer}out_norm.scale" in self._weights else x
        attended = self._dense(self._attend(seen, layer, number), f"{layer}out")
        x += self._ops.cast(drop(attended, config.attention_dropout), self._ops.float32)
        inner, gate = self._ops.split(self._dense(self._normalize(x, f"{layer}outer_norm"), f"{layer}inner"), 2, axis=1)
        inner = self._dropped(self._operations.activate(inner) * gate)
        return x + self._ops.cast(self._dense(inner, f"{layer}outer"), self._ops.float32)

    def _convolution(self, embedded: Tensor, x: Tensor) -> Tensor:
        """Add DeBERTa's convolution over the embeddings of neighboring tokens, and normalize the sum."""
        layout, config = self._layout, self._config
        there = self._ops.cast(layout.mask, self._ops.float32)[:, :, None]
        places = self._ops.reshape(layout.unpack(embedded), [layout.documents, layout.width, config.width]) * there
        places, kernel, bias = (
            self._ops.cast(one, self._dtype)
            for one in (places, self._weights["convolution.kernel"], self._weights["convolution.bias"])
        )
        found = self._ops.nn.bias_add(self._ops.nn.conv1d(places, kernel, stride=1, padding="SAME"), bias)
        found = self._dropped(layout.pack(self._ops.reshape(found, [-1, config.width])))
        found = self._operations.named_activation(config.option("conv_act", "tanh"))(found)
        return self._add_and_normalize(x, found, "convolution_norm")

    def _dense(self, x: Tensor, name: str) -> Tensor:
        kernel, bias = self._weights[f"{name}.kernel"], self._weights.get(f"{name}.bias")
        return self._operations.dense(x, kernel, bias, self._dtype)

    def _dropped(self, x: Tensor) -> Tensor:
        return self._operations.drop(x, self._config.dropout)

    def _normalize(self, x: Tensor, name: str) -> Tensor:
        return self._operations.normalize(x, *self._norm(name))

    def _add_and_normalize(self, x: Tensor, y: Tensor, name: str) -> Tensor:
        return self._operations.add_and_normalize(x, y, *self._norm(name))

    def _norm(self, name: str) -> tuple[Tensor, Tensor | None]:
        return self._weights[f"{name}.scale"], self._weights.get(f"{name}.shift")


def _pool(ops: Any, pooling: str, states: Any, mask: Any, last_is_cls: bool) -> Any:
    """Apply a pooling without weights: float32 [documents, dim]. The mean or maximum of an empty document is 0."""
    if pooling in ("last", "last_tanh") or (pooling == "cls" and last_is_cls):
        last = ops.reduce_sum(mask, axis=1) - 1
        found = ops.gather(states, ops.maximum(last, 0), axis=1, batch_dims=1)
        return ops.tanh(found) if pooling == "last_tanh" else found
    if pooling == "cls":
        return states[:, 0]
    count = ops.reduce_sum(mask, axis=1, keepdims=True)
    if pooling == "max":
        highest = ops.reduce_max(ops.where(mask[:, :, None] > 0, states, _LOWEST), axis=1)
        return ops.where(count > 0, highest, ops.zeros_like(highest))
    weights = ops.cast(mask, ops.float32)[:, None, :]
    return ops.squeeze(weights @ states, axis=1) / ops.cast(ops.maximum(count, 1), ops.float32)
