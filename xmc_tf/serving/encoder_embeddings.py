"""Dense features from an encoder: tokenizer, transformer and pooling in the served graph."""

import logging
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from xmc_tf.common.errors import InputError
from xmc_tf.encoder import Encoder, TextTokenizer
from xmc_tf.serving.bert_graph import BertGraph
from xmc_tf.serving.sizes import rounded_up

_LOG = logging.getLogger(__name__)


class EncoderEmbeddings:
    """Embeddings of an encoder, scaled to the length that the rankers were trained on.

    If the tokenizer cannot run in the graph, callers send token ids.

    Example:
        >>> export_model(ModelParts(ranker, names, tfidf, EncoderEmbeddings(encoder, tokenizer, 128)), "served/1")

    Args:
        encoder: the encoder.
        tokenizer: its tokenizer.
        max_length: maximum number of tokens of a text, as in training.
        length: the norm of the rankers' embeddings.
    """

    def __init__(self, encoder: Encoder, tokenizer: TextTokenizer, max_length: int, length: float = 1.0) -> None:
        self.dim, self.length = encoder.dim, length
        self.inputs: Mapping[str, tf.TensorSpec] = {
            "token_ids": tf.TensorSpec([None, None], tf.int32),
            "token_mask": tf.TensorSpec([None, None], tf.int32),
        }
        compact = BertGraph.of(encoder)
        self._run: Any = compact or encoder
        self.tracked: list[Any] = list((compact or encoder).variables)
        self._encoder = encoder
        self._max_length = max_length
        # One graph shared by the signatures, because a server holds several copies of each graph of a model.
        self._vectors = tf.function(self._unit_vectors, input_signature=list(self.inputs.values()), autograph=False)
        self._tokenizer: Any = None
        try:
            self._tokenizer = tokenizer.in_graph(max_length)
        except InputError as error:
            _LOG.warning("the exported model takes token ids instead of text: %s", error.problem)
        else:
            self.tracked += self._tokenizer.modules_to_save
        self.reads_text = self._tokenizer is not None

    def of_text(self, text: tf.Tensor) -> tf.Tensor:
        """Return the embeddings of texts."""
        return self._vectors(*self._tokenizer(text))

    def of_inputs(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return the embeddings of padded token ids with their mask."""
        ids, mask = inputs["token_ids"], inputs["token_mask"]
        known = self._encoder.vocabulary_size
        with tf.control_dependencies([
            tf.raw_ops.Assert(condition=condition, data=[tf.constant(message)])
            for condition, message in (
                (tf.shape(ids)[1] <= self._max_length, f"token_ids may have at most {self._max_length} columns"),
                (tf.reduce_all((ids >= 0) & (ids < known)), f"token_ids must lie between 0 and {known - 1}"),
                (
                    tf.reduce_all(tf.equal(tf.shape(ids), tf.shape(mask))),
                    "token_ids and token_mask must have the same shape",
                ),
            )
        ]):  # fmt: skip
            return self._vectors(tf.identity(ids), tf.identity(mask))

    def _unit_vectors(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        count = tf.shape(ids)[0]
        # Attention fails without documents, so an artificial one is added and removed again.
        made_up = tf.cast(tf.equal(count, 0), tf.int32)
        width = tf.shape(ids)[1]
        longer = tf.minimum(rounded_up(tf.maximum(width, 1)), self._max_length) - width
        padding = int(self._encoder.config.pad_token_id or 0)
        ids = tf.pad(ids, [[0, made_up], [0, longer]], constant_values=padding)
        mask = tf.pad(tf.pad(mask, [[0, 0], [0, longer]]), [[0, made_up], [0, 0]], constant_values=1)
        vectors = self._run(ids, mask)[:count]
        return tf.math.divide_no_nan(vectors, tf.norm(vectors, axis=1, keepdims=True))
