"""BERT as a compact served graph: the same numbers as the training class, with less than half the operations.

Two changes make it faster for single texts and batches:

- The tokens of all texts are the rows of one matrix, without padding; only attention arranges them by text. So every
  layer is a product of two matrices, which TensorFlow fuses with the bias and the activation, and a batch of texts of
  different lengths computes only its tokens (rounded up, see ``sizes.py``).
- Query, key and value are one product, and the scale of the queries is part of its weights.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from xmc_tf.encoder import Encoder
from xmc_tf.encoder.pooling import pool
from xmc_tf.serving.sizes import rounded_up

# The number that transformers adds to the attention scores of padding.
_ABSENT = -10_000.0
_CLOSE = 1e-4


class BertGraph:
    """A BERT encoder as a compact graph.

    Example:
        >>> graph = BertGraph.of(encoder)
        >>> embeddings = graph(ids, mask) if graph else encoder(ids, mask)

    Attributes:
        variables: its weights, with those of query, key and value concatenated.
    """

    def __init__(self, encoder: Encoder) -> None:
        bert, config = encoder.model.bert, encoder.config
        self._encoder = encoder
        self._heads, self._epsilon = int(config.num_attention_heads), float(config.layer_norm_eps)
        embeddings = bert.embeddings
        self._words, self._places = embeddings.weight, embeddings.position_embeddings
        # Served texts always have token type 0.
        self._kind = _variable(embeddings.token_type_embeddings[0], "kind")
        self._norm = _norm(embeddings.LayerNorm)
        self._layers = [_Layer(layer, self._heads) for layer in bert.encoder.layer]
        self._pooler = bert.pooler if encoder.pooling == "pooler" else None
        self.variables: Sequence[tf.Variable] = [
            self._words, self._places, self._kind, *self._norm,
            *(variable for layer in self._layers for variable in layer.variables),
            *(self._pooler.variables if self._pooler is not None else ()),
        ]  # fmt: skip

    @classmethod
    def of(cls, encoder: Encoder) -> "BertGraph | None":
        """Return the graph of an encoder; None if it is not BERT or the graph would give other numbers."""
        config = encoder.config
        usual = (
            config.model_type == "bert"
            and config.hidden_act == "gelu"
            and getattr(config, "position_embedding_type", "absolute") == "absolute"
            and not (config.is_decoder or config.add_cross_attention)
            and all(variable.dtype == tf.float32 for variable in encoder.variables)
        )
        if not usual:
            return None
        made = cls(encoder)
        return made if made._agrees() else None

    def __call__(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Return the embeddings of texts, equal to the encoder's.

        Args:
            ids: int32 [n, t].
            mask: int32 [n, t], 1 for a token.
        """
        # The first token always counts, so that there is something to compute.
        first = tf.one_hot(tf.zeros(tf.shape(mask)[:1], tf.int32), tf.shape(mask)[1], True, False)
        layout = _Layout((mask > 0) | first, mask)
        words = tf.where(mask > 0, ids, int(self._encoder.config.pad_token_id or 0))
        x = tf.gather(self._words, tf.gather_nd(words, layout.tokens))
        x += tf.gather(self._places, layout.tokens[:, 1]) + self._kind
        x = self._normal(x, *self._norm)
        for layer in self._layers:
            attended = tf.nn.bias_add(tf.matmul(layer.attention(x, layout), layer.out[0]), layer.out[1])
            x = self._normal(attended + x, *layer.out_norm)
            inner = tf.nn.gelu(tf.nn.bias_add(tf.matmul(x, layer.wide[0]), layer.wide[1]))
            x = self._normal(tf.nn.bias_add(tf.matmul(inner, layer.narrow[0]), layer.narrow[1]) + x, *layer.narrow_norm)
        states = tf.gather(x, layout.rows)
        pooled = self._pooler(hidden_states=states) if self._pooler is not None else None
        vectors = pool(self._encoder.pooling, states, mask, pooled, False)
        return tf.ensure_shape(vectors, [None, self._encoder.dim])

    def _normal(self, x: tf.Tensor, gamma: tf.Variable, beta: tf.Variable) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, [1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, self._epsilon)

    def _agrees(self) -> bool:
        draw = np.random.default_rng(0)
        ids = draw.integers(0, self._encoder.vocabulary_size, (3, min(12, self._encoder.max_length))).astype(np.int32)
        mask = np.ones_like(ids)
        mask[1, 5:] = mask[2, 1:] = 0
        expected, found = (np.asarray(one(tf.constant(ids), tf.constant(mask))) for one in (self._encoder, self))
        return bool(np.abs(expected - found).max() <= _CLOSE * max(float(np.abs(expected).max()), 1e-6))


class _Layout:
    """The places of tokens: as rows of one matrix, and by text.

    Args:
        here: bool [n, t]: the tokens to compute.
        mask: int32 [n, t]: the tokens to attend to.
    """

    def __init__(self, here: tf.Tensor, mask: tf.Tensor) -> None:
        # Additional rows of no text point to place 0 and are ignored later.
        flat = tf.where(tf.reshape(here, [-1]))[:, 0]
        more = rounded_up(tf.size(flat)) - tf.size(flat)
        self.tokens = tf.pad(tf.where(here), [[0, more], [0, 0]])
        self.flat = tf.pad(flat, [[0, more]])
        flat = tf.reshape(tf.cast(here, tf.int32), [-1])
        # The row of each place by text; any row for padding, because it is ignored.
        self.rows = tf.reshape(tf.maximum(tf.cumsum(flat) - 1, 0), tf.shape(mask))
        self.absent = ((1.0 - tf.cast(mask, tf.float32)) * _ABSENT)[:, None, None, :]


class _Layer:
    """The weights of one layer."""

    def __init__(self, layer: Any, heads: int) -> None:
        own = layer.attention.self_attention
        self._heads = heads
        scale = np.float32(1 / np.sqrt(own.attention_head_size))
        parts = [(own.query, scale), (own.key, np.float32(1)), (own.value, np.float32(1))]
        # Concatenated, not interleaved, so that the heads of each part stay together.
        self.all = (
            _variable(
                np.concatenate([part.kernel.numpy() * factor for part, factor in parts], axis=1), "query_key_value"
            ),
            _variable(np.concatenate([part.bias.numpy() * factor for part, factor in parts]), "query_key_value_bias"),
        )
        output = layer.attention.dense_output
        self.out, self.out_norm = (output.dense.kernel, output.dense.bias), _norm(output.LayerNorm)
        self.wide = (layer.intermediate.dense.kernel, layer.intermediate.dense.bias)
        self.narrow = (layer.bert_output.dense.kernel, layer.bert_output.dense.bias)
        self.narrow_norm = _norm(layer.bert_output.LayerNorm)
        self.variables = [*self.all, *self.out, *self.out_norm, *self.wide, *self.narrow, *self.narrow_norm]

    def attention(self, x: tf.Tensor, layout: _Layout) -> tf.Tensor:
        """Return the output of attention for each token, in the order of the rows."""
        width = x.shape[1]
        together = tf.nn.bias_add(tf.matmul(x, self.all[0]), self.all[1])
        by_text = tf.gather(together, layout.rows)
        sizes = tf.shape(layout.rows)
        by_head = tf.reshape(by_text, [sizes[0], sizes[1], 3, self._heads, width // self._heads])
        query, key, value = tf.unstack(tf.transpose(by_head, [2, 0, 3, 1, 4]))
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) + layout.absent)
        found = tf.reshape(tf.transpose(weights @ value, [0, 2, 1, 3]), [-1, width])
        return tf.gather(found, layout.flat)


def _norm(layer: Any) -> tuple[tf.Variable, tf.Variable]:
    return layer.gamma, layer.beta


def _variable(values: Any, name: str) -> tf.Variable:
    return tf.Variable(values, trainable=False, name=name)
