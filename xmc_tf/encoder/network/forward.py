"""The forward pass of an encoder's network, shared by all architectures and runtimes."""

from typing import Any

import numpy as np

from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.attention import Tensor
from xmc_tf.encoder.network.parts import Parts

_LOWEST = float(np.finfo(np.float32).min)


class Forward(Parts):
    """The network for one batch: the parts, as its architecture arranges them."""

    def states(self, ids: Tensor) -> Tensor:
        """Return the hidden states of tokens, float32 [rows, width], given int32 ids [documents, tokens]."""
        return self.upper_states(self.lower_states(ids, 0), 0)

    def lower_states(self, ids: Tensor, layers: int) -> Tensor:
        """Return the input of the layer with the number ``layers``: embeddings, after that many layers."""
        architecture: Architecture = self.config.architecture
        return self._apply(architecture.embed(self, ids), 0, layers)

    def upper_states(self, x: Tensor, first: int) -> Tensor:
        """Return the hidden states, given the input of the layer with the number ``first``."""
        architecture: Architecture = self.config.architecture
        return architecture.finish(self, self._apply(x, first, None))

    def _apply(self, x: Tensor, first: int, last: int | None) -> Tensor:
        architecture: Architecture = self.config.architecture
        if first == 0:
            self.embedded = x
        for number, shared in list(enumerate(architecture.layer_order(self.config)))[first:last]:
            x = architecture.layer(self, x, f"layer.{shared}.", number)
        return x

    def embeddings(self, ids: Tensor, pooling: str) -> Tensor:
        """Return the embeddings of documents, float32 [documents, width]; ids at padding are ignored."""
        return self.pooled(self.states(self.without_padding(ids)), pooling)

    def without_padding(self, ids: Tensor) -> Tensor:
        """Return ids with the padding id at padding."""
        return self.ops.where(self.layout.mask > 0, ids, self.config.pad_id)

    def pooled(self, rows: Tensor, pooling: str) -> Tensor:
        """Return the embeddings of documents, given the hidden states of tokens."""
        layout, config = self.layout, self.config
        states = self.ops.reshape(layout.unpack(rows), [layout.documents, layout.width, config.width])
        if pooling == "pooler":
            return self.pooler(states[:, 0])
        return _pool(self.ops, pooling, states, layout.mask, config.architecture.cls_is_last)

    def pooler(self, first: Tensor) -> Tensor:
        return self.ops.tanh(self.ops.cast(self.dense(first, "pooler"), self.ops.float32))


def _pool(ops: Any, pooling: str, states: Any, mask: Any, cls_is_last: bool) -> Any:
    """Apply a pooling without weights: float32 [documents, dim]. The mean or maximum of an empty document is 0."""
    if pooling in ("last", "last_tanh") or (pooling == "cls" and cls_is_last):
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
