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
        architecture: Architecture = self.config.architecture
        x = self.embedded = architecture.embed(self, ids)
        for number, shared in enumerate(architecture.layer_order(self.config)):
            x = architecture.layer(self, x, f"layer.{shared}.", number)
        return architecture.finish(self, x)

    def embeddings(self, ids: Tensor, pooling: str) -> Tensor:
        """Return the embeddings of documents, float32 [documents, width]; ids at padding are ignored."""
        layout, config = self.layout, self.config
        rows = self.states(self.ops.where(layout.mask > 0, ids, config.pad_id))
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
