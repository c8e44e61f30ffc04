"""The network of an encoder: embeddings and layers, one forward pass for all architectures and uses."""

from collections.abc import Mapping

import tensorflow as tf

from xmc_tf.encoder.network.attention import ATTENTIONS, Attention
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.layout import Layout
from xmc_tf.encoder.network.operations import Operations
from xmc_tf.encoder.network.weight_names import layer_order


class Forward:
    """A forward pass through the network, for one batch.

    Args:
        config: the encoder's configuration.
        weights: its weights by name.
        layout: the places of the batch's tokens.
        operations: the operations beside products; those of training apply dropout.
        dtype: type of the products; sums of layers and normalization are float32.
    """

    def __init__(
        self,
        config: EncoderConfig,
        weights: Mapping[str, tf.Variable],
        layout: Layout,
        operations: Operations,
        dtype: tf.DType = tf.float32,
    ) -> None:
        self._config, self._weights, self._layout = config, weights, layout
        self._operations, self._dtype = operations, dtype
        kind = ATTENTIONS.get(config.architecture, Attention)
        self._attend = kind(config, weights, layout, operations, self._dense, dtype)

    def states(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the hidden states of tokens, float32 [rows, width].

        Args:
            ids: int32 [documents, tokens].
        """
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

    def pooler(self, first: tf.Tensor) -> tf.Tensor:
        """Return the output of the architecture's pooler for the first tokens' states."""
        return tf.tanh(tf.cast(self._dense(first, "pooler"), tf.float32))

    def _embed(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the sum of the embeddings of words, positions and segments, normalized."""
        config, weights, layout = self._config, self._weights, self._layout
        x = tf.gather(weights["words"], tf.gather(tf.reshape(ids, [-1]), layout.flat))
        if "positions" in weights:
            x += tf.gather(weights["positions"], layout.positions + config.first_position)
        if "segments" in weights:
            x += tf.gather(weights["segments"], [0])  # a document is one segment
        kind = config.architecture
        if kind == "deberta-v2":  # normalizes after the projection
            return self._dropped(self._normalize(self._projected(x), "embedding_norm"))
        if kind != "xlnet":
            x = self._normalize(x, "embedding_norm")
        rate = config.option("embedding_dropout", 0.0) if kind == "modernbert" else config.dropout
        return self._projected(self._operations.drop(x, rate))

    def _projected(self, x: tf.Tensor) -> tf.Tensor:
        """Return embeddings as wide as the layers."""
        return tf.cast(self._dense(x, "projection"), tf.float32) if "projection.kernel" in self._weights else x

    def _layer_norm_after(self, x: tf.Tensor, layer: str, number: int) -> tf.Tensor:
        """Return the states after a layer that normalizes each sum, as BERT and most others do."""
        attended = self._dropped(self._dense(self._attend(x, layer, number), f"{layer}out"))
        x = self._add_and_normalize(x, attended, f"{layer}out_norm")
        inner = self._operations.activate(self._dense(x, f"{layer}inner"))
        if self._config.architecture == "xlnet":
            inner = self._dropped(inner)
        return self._add_and_normalize(x, self._dropped(self._dense(inner, f"{layer}outer")), f"{layer}outer_norm")

    def _layer_norm_before(self, x: tf.Tensor, layer: str, number: int) -> tf.Tensor:
        """Return the states after a layer that normalizes its inputs, and whose inner layer has gates."""
        config, drop = self._config, self._operations.drop
        seen = self._normalize(x, f"{layer}out_norm") if f"{layer}out_norm.scale" in self._weights else x
        attended = self._dense(self._attend(seen, layer, number), f"{layer}out")
        x += tf.cast(drop(attended, config.attention_dropout), tf.float32)
        inner, gate = tf.split(self._dense(self._normalize(x, f"{layer}outer_norm"), f"{layer}inner"), 2, axis=1)
        inner = self._dropped(self._operations.activate(inner) * gate)
        return x + tf.cast(self._dense(inner, f"{layer}outer"), tf.float32)

    def _convolution(self, embedded: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Return the states after DeBERTa's convolution over neighbouring tokens' embeddings."""
        layout, config = self._layout, self._config
        there = tf.cast(layout.mask, tf.float32)[:, :, None]
        places = tf.reshape(layout.unpack(embedded), [layout.documents, layout.width, config.width]) * there
        kernel, bias = (tf.cast(self._weights[f"convolution.{name}"], self._dtype) for name in ("kernel", "bias"))
        found = tf.nn.bias_add(tf.nn.conv1d(tf.cast(places, self._dtype), kernel, stride=1, padding="SAME"), bias)
        found = self._dropped(layout.pack(tf.reshape(found, [-1, config.width])))
        act = config.option("conv_act", "tanh")
        found = Operations(act, config.epsilon).activate(found)
        return self._add_and_normalize(x, found, "convolution_norm")

    def _dense(self, x: tf.Tensor, name: str) -> tf.Tensor:
        out = tf.matmul(tf.cast(x, self._dtype), tf.cast(self._weights[f"{name}.kernel"], self._dtype))
        bias = self._weights.get(f"{name}.bias")
        return out if bias is None else tf.nn.bias_add(out, tf.cast(bias, self._dtype))

    def _dropped(self, x: tf.Tensor) -> tf.Tensor:
        return self._operations.drop(x, self._config.dropout)

    def _normalize(self, x: tf.Tensor, name: str) -> tf.Tensor:
        return self._operations.normalize(x, *self._norm(name))

    def _add_and_normalize(self, x: tf.Tensor, y: tf.Tensor, name: str) -> tf.Tensor:
        return self._operations.add_and_normalize(x, y, *self._norm(name))

    def _norm(self, name: str) -> tuple[tf.Variable, tf.Variable | None]:
        return self._weights[f"{name}.scale"], self._weights.get(f"{name}.shift")
